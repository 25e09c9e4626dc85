// build_order.cpp: what orders ops besides data: phases, overlap regions, the pipeline, and the
// names in `after` and `phase`.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/frontend/build.h"

namespace maco::frontend {

namespace {

std::vector<std::string> op_names(const BuildContext& c) {
  std::vector<std::string> names;
  for (const ir::Op& op : c.graph.ops) names.push_back(op.name);
  return names;
}

/// Reports a name that no op has. `user`: "'after' of 'matmul'".
bool check_op(BuildContext& c, const std::string& name, ir::Loc loc, const std::string& user) {
  if (c.op_of.count(name) > 0) {
    if (c.called[name] < 2) return true;
    c.error(loc, fmt::format("{} names op '{}', but {} ops are called so, by their own name or by "
                             "their first output: give the one that is meant a name of its own",
                             user, name, c.called[name]));
    return false;
  }
  // An op that couldn't be read may have that name.
  if (c.hidden_outputs) return false;
  if (!c.error(loc, fmt::format("{} names op '{}', which is not defined", user, name)))
    return false;
  std::string hint = suggest(c, name, op_names(c));
  if (auto t = c.tensor_of.find(name); t != c.tensor_of.end() && hint.empty()) {
    const int32_t writer = c.tensor_state[t->second].writer;
    hint = "; it is the name of a tensor";
    if (writer >= 0)
      hint += fmt::format(", which op '{}' writes", c.graph.ops[static_cast<size_t>(writer)].name);
  }
  c.report.append(hint);
  return false;
}

std::vector<std::string> phase_names(const BuildContext& c) {
  std::vector<std::string> names;
  for (const ir::Phase& p : c.graph.phases) names.push_back(p.name);
  return names;
}

void check_phase(BuildContext& c, const std::string& name, ir::Loc loc, const std::string& user) {
  if (c.options.incomplete || c.phase_of.count(name) > 0) return;
  if (!c.error(loc, fmt::format("{} names phase '{}', which is not defined", user, name))) return;
  const std::vector<std::string> names = phase_names(c);
  c.report.append(names.empty() ? "; the graph has no 'phases'" : suggest(c, name, names));
}

/// A list of maps, each read by `body`.
template <class Body>
void for_each_map(BuildContext& c, const Raw& raw, const std::string& what, const std::string& item,
                  Body body) {
  if (!expect(c, raw, Raw::Kind::List, what, "a list of maps")) return;
  for (const Raw& entry : raw.list)
    if (expect(c, entry, Raw::Kind::Map, item, "a map of keys")) body(entry);
}

}  // namespace

void build_phases(BuildContext& c, const Raw& phases) {
  std::vector<std::vector<ir::Loc>> places;  // of the names in depends_on
  for_each_map(c, phases, "'phases'", "a phase", [&](const Raw& raw) {
    check_keys(c, raw, "a phase", {"name", "depends_on"});
    const Raw* name = require(c, raw, "a phase", "name");
    auto text = name == nullptr ? std::nullopt : read_name(c, *name, "the name of a phase");
    if (!text) return;
    ir::Phase phase{*text, {}, name->loc};
    const auto [first, fresh] = c.phase_of.try_emplace(phase.name, c.graph.phases.size());
    if (!fresh) {
      if (c.error(phase.loc, fmt::format("two phases are called '{}'", phase.name)))
        c.note(c.graph.phases[first->second].loc, "the first is here");
      return;
    }
    std::vector<ir::Loc> locs;
    if (const Raw* depends = raw.find("depends_on")) {
      for (auto& [other, loc] :
           read_names(c, *depends, "'depends_on' of phase '" + phase.name + "'", true)) {
        phase.depends_on.push_back(std::move(other));
        locs.push_back(loc);
      }
    }
    c.graph.phases.push_back(std::move(phase));
    places.push_back(std::move(locs));
  });
  for (size_t i = 0; i < c.graph.phases.size(); ++i)
    for (size_t k = 0; k < places[i].size(); ++k)
      check_phase(c, c.graph.phases[i].depends_on[k], places[i][k],
                  fmt::format("phase '{}'", c.graph.phases[i].name));
}

void build_regions(BuildContext& c, const Raw& regions) {
  for_each_map(c, regions, "'overlap_regions'", "an overlap region", [&](const Raw& raw) {
    check_keys(c, raw, "an overlap region", {"name", "ops"});
    const Raw* name = require(c, raw, "an overlap region", "name");
    const Raw* ops = require(c, raw, "an overlap region", "ops");
    auto text =
        name == nullptr ? std::nullopt : read_name(c, *name, "the name of an overlap region");
    if (!text || ops == nullptr) return;
    ir::OverlapRegion region{*text, {}, name->loc};
    for (const ir::OverlapRegion& other : c.graph.overlap_regions) {
      if (other.name != region.name) continue;
      if (c.error(region.loc, fmt::format("two overlap regions are called '{}'", region.name)))
        c.note(other.loc, "the first is here");
      return;
    }
    const std::string what = fmt::format("overlap region '{}'", region.name);
    bool complete = false;
    for (const auto& [op, loc] : read_names(c, *ops, "a member of " + what, false, &complete)) {
      if (!check_op(c, op, loc, what)) continue;
      if (std::find(region.ops.begin(), region.ops.end(), op) != region.ops.end())
        c.error(loc, fmt::format("{} names op '{}' twice", what, op));
      else
        region.ops.push_back(op);
    }
    if (complete && ops->list.empty()) c.error(ops->loc, fmt::format("{} has no ops", what));
    c.graph.overlap_regions.push_back(std::move(region));
  });
}

void build_pipeline(BuildContext& c, const Raw& raw) {
  if (!expect(c, raw, Raw::Kind::Map, "'pipeline'", "a map with 'stages' and 'microbatches'"))
    return;
  check_keys(c, raw, "'pipeline'", {"stages", "microbatches"});
  const Raw* stages = require(c, raw, "'pipeline'", "stages");
  const Raw* microbatches = require(c, raw, "'pipeline'", "microbatches");
  ir::Pipeline pipeline;
  pipeline.loc = raw.loc;
  if (microbatches != nullptr)
    if (auto n = read_constant(c, *microbatches, "'microbatches'", 1, INT32_MAX))
      pipeline.microbatches = *n;
  if (stages != nullptr &&
      expect(c, *stages, Raw::Kind::List, "'stages'", "a list of lists of ops")) {
    if (stages->list.empty()) c.error(stages->loc, "'stages' of 'pipeline' is empty");
    std::map<std::string, ir::Loc> seen;
    for (const Raw& stage : stages->list) {
      std::vector<std::string> members;
      bool complete = false;
      for (const auto& [op, loc] : read_names(c, stage, "an op of a stage", false, &complete)) {
        if (!check_op(c, op, loc, "a stage")) continue;
        const auto [it, fresh] = seen.emplace(op, loc);
        if (!fresh && c.error(loc, fmt::format("op '{}' is in two places of the pipeline", op)))
          c.note(it->second, "the first is here");
        if (fresh) members.push_back(op);
      }
      if (complete && stage.list.empty()) c.error(stage.loc, "a stage of 'pipeline' has no ops");
      pipeline.stages.push_back(std::move(members));
    }
  }
  c.graph.pipeline = std::move(pipeline);
}

void check_references(BuildContext& c) {
  for (size_t i = 0; i < c.graph.ops.size(); ++i) {
    const ir::Op& op = c.graph.ops[i];
    for (size_t k = 0; k < op.after.size(); ++k)
      check_op(c, op.after[k], op.after_loc[k], fmt::format("'after' of '{}'", op.name));
    if (op.phase) check_phase(c, *op.phase, op.phase_loc, fmt::format("op '{}'", op.name));
  }
}

}  // namespace maco::frontend
