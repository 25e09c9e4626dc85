// check_constraints.cpp: checks what orders ops besides data: `after`, phases, overlap regions, the
// pipeline.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/graph/check_parts.h"

namespace maco::graph {

namespace {

/// A hint for `name`, which no op has: what may be meant.
std::string hint_for_op_name(Check& c, const std::string& name) {
  std::vector<std::string> names;
  for (const ir::Op& op : c.graph.ops) names.push_back(op.name);
  std::string near = suggest(c, name, names);
  if (!near.empty() || c.tensors.count(name) == 0) return near;
  const auto t = c.graph.find_tensor(name);
  if (!t) return near;
  const Writer& writer = c.writer(*t);
  if (writer.op < 0) return "; it is the name of a tensor";
  return fmt::format("; it is the name of a tensor, which op '{}' writes",
                     c.graph.ops[static_cast<size_t>(writer.op)].name);
}

/// The place of entry `k`; `places` has none if no text is known.
ir::Loc at(const std::vector<ir::Loc>& places, size_t k, ir::Loc otherwise) {
  return k < places.size() ? places[k] : otherwise;
}

void check_after(Check& c) {
  for (const ir::Op& op : c.graph.ops) {
    for (size_t k = 0; k < op.after.size(); ++k)
      check_op_name(c, op.after[k], at(op.after_loc, k, op.loc), after_of(op));
    if (op.phase)
      check_phase_name(c, *op.phase, op.phase_loc.known() ? op.phase_loc : op.loc,
                       fmt::format("op '{}'", op.name));
  }
}

void check_phases(Check& c) {
  for (const ir::Phase& p : c.graph.phases)
    if (check_name(c, p.name, p.loc, kPhaseName)) give_name(c, c.phases, "phases", p.name, p.loc);
  for (const ir::Phase& p : c.graph.phases)
    for (const std::string& other : p.depends_on)
      check_phase_name(c, other, p.loc, fmt::format("phase '{}'", p.name));
}

}  // namespace

std::string after_of(const ir::Op& op) { return fmt::format("'after' of '{}'", op.name); }
std::string region_text(const ir::OverlapRegion& region) {
  return fmt::format("overlap region '{}'", region.name);
}

bool check_op_name(Check& c, const std::string& name, ir::Loc loc, const std::string& user) {
  if (c.ops.count(name) > 0) {
    const auto called = c.called.find(name);
    if (called == c.called.end() || called->second < 2) return true;
    c.error(loc, fmt::format("{} names op '{}', but {} ops are called so, by their own name or by "
                             "their first output: give the one that is meant a name of its own",
                             user, name, called->second));
    return false;
  }
  if (!c.hidden_ops)
    c.error(loc, fmt::format("{} names op '{}', which is not defined", user, name),
            [&] { return hint_for_op_name(c, name); });
  return false;
}

bool check_phase_name(Check& c, const std::string& name, ir::Loc loc, const std::string& user) {
  if (c.incomplete || c.phases.count(name) > 0) return true;
  c.error(loc, fmt::format("{} names phase '{}', which is not defined", user, name), [&] {
    std::vector<std::string> names;
    for (const ir::Phase& p : c.graph.phases) names.push_back(p.name);
    return names.empty() ? "; the graph has no 'phases'" : suggest(c, name, names);
  });
  return false;
}

void check_members(Check& c, const ir::OverlapRegion& region, const std::vector<ir::Loc>& places,
                   ir::Loc loc) {
  const std::string what = region_text(region);
  if (region.ops.empty()) c.error(loc, fmt::format("{} has no ops", what));
  std::set<std::string_view> members;
  for (size_t k = 0; k < region.ops.size(); ++k) {
    const std::string& op = region.ops[k];
    const ir::Loc place = at(places, k, loc);
    if (check_op_name(c, op, place, what) && !members.insert(op).second)
      c.error(place, fmt::format("{} names op '{}' twice", what, op));
  }
}

void check_stages(Check& c, const ir::Pipeline& pipeline, const PipelinePlaces& places) {
  if (pipeline.stages.empty()) c.error(places.stages, "'stages' of 'pipeline' is empty");
  Places seen;
  for (size_t s = 0; s < pipeline.stages.size(); ++s) {
    const ir::Loc stage = at(places.stage, s, places.stages);
    if (pipeline.stages[s].empty()) c.error(stage, "a stage of 'pipeline' has no ops");
    for (size_t k = 0; k < pipeline.stages[s].size(); ++k) {
      const std::string& op = pipeline.stages[s][k];
      const ir::Loc loc = s < places.op.size() ? at(places.op[s], k, stage) : stage;
      if (!check_op_name(c, op, loc, "a stage")) continue;
      const auto [first, fresh] = seen.emplace(op, loc);
      if (!fresh && c.error(loc, fmt::format("op '{}' is in two places of the pipeline", op)))
        c.note(first->second, "the first is here");
    }
  }
}

void check_constraints(Check& c) {
  check_phases(c);
  for (const ir::OverlapRegion& r : c.graph.overlap_regions)
    if (check_name(c, r.name, r.loc, kRegionName) &&
        give_name(c, c.regions, "overlap regions", r.name, r.loc))
      check_members(c, r, {}, r.loc);
  if (const auto& p = c.graph.pipeline) {
    check_within(c, p->microbatches, 1, INT32_MAX, p->loc, "'microbatches'");
    check_stages(c, *p, {p->loc, {}, {}});
  }
  check_after(c);
}

}  // namespace maco::graph
