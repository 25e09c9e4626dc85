// check_constraints.cpp: checks what orders ops besides data: `after`, phases, overlap regions, the
// pipeline.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/graph/check_parts.h"

namespace maco::graph {

namespace {

/// Reports a name that no op has. `user`: "'after' of 'y'".
bool check_op_name(Check& c, const std::string& name, ir::Loc loc, const std::string& user) {
  if (c.has_op(name)) return true;
  constexpr int kMostSearches = 20;
  std::vector<std::string> names;
  if (c.searches++ < kMostSearches)
    for (const ir::Op& op : c.graph.ops) names.push_back(op.name);
  c.error(loc, fmt::format("{} names op '{}', which is not defined{}", user, name,
                           ir::did_you_mean(name, names)));
  return false;
}

std::string near_phase(const Check& c, const std::string& name) {
  std::vector<std::string> names;
  for (const ir::Phase& p : c.graph.phases) names.push_back(p.name);
  return ir::did_you_mean(name, names);
}

void check_after(Check& c) {
  std::set<std::string_view> phases;
  for (const ir::Phase& p : c.graph.phases) phases.insert(p.name);
  for (const ir::Op& op : c.graph.ops) {
    for (size_t k = 0; k < op.after.size(); ++k)
      check_op_name(c, op.after[k], k < op.after_loc.size() ? op.after_loc[k] : op.loc,
                    fmt::format("'after' of '{}'", op.name));
    if (op.phase && phases.count(*op.phase) == 0)
      c.error(op.phase_loc.known() ? op.phase_loc : op.loc,
              fmt::format("op '{}' names phase '{}', which is not defined{}", op.name, *op.phase,
                          near_phase(c, *op.phase)));
  }
}

void check_phases(Check& c) {
  std::unordered_map<std::string_view, const ir::Phase*> first;
  for (const ir::Phase& p : c.graph.phases) {
    if (!check_name(c, p.name, p.loc, "the name of a phase")) continue;
    const auto [other, fresh] = first.emplace(p.name, &p);
    if (!fresh && c.error(p.loc, fmt::format("two phases are called '{}'", p.name)))
      c.report.note(other->second->loc, "the first is here");
  }
  for (const ir::Phase& p : c.graph.phases)
    for (const std::string& other : p.depends_on)
      if (first.count(other) == 0)
        c.error(p.loc, fmt::format("phase '{}' names phase '{}', which is not defined{}", p.name,
                                   other, near_phase(c, other)));
}

void check_regions(Check& c) {
  std::unordered_map<std::string_view, const ir::OverlapRegion*> first;
  for (const ir::OverlapRegion& r : c.graph.overlap_regions) {
    if (!check_name(c, r.name, r.loc, "the name of an overlap region")) continue;
    const auto [other, fresh] = first.emplace(r.name, &r);
    if (!fresh && c.error(r.loc, fmt::format("two overlap regions are called '{}'", r.name)))
      c.report.note(other->second->loc, "the first is here");
    const std::string what = fmt::format("overlap region '{}'", r.name);
    if (r.ops.empty()) c.error(r.loc, fmt::format("{} has no ops", what));
    std::set<std::string_view> members;
    for (const std::string& op : r.ops)
      if (check_op_name(c, op, r.loc, what) && !members.insert(op).second)
        c.error(r.loc, fmt::format("{} names op '{}' twice", what, op));
  }
}

void check_pipeline(Check& c, const ir::Pipeline& p) {
  if (p.microbatches < 1 || p.microbatches > INT32_MAX)
    c.error(p.loc,
            fmt::format("'microbatches' must be 1 to {}, found {}", INT32_MAX, p.microbatches));
  if (p.stages.empty()) c.error(p.loc, "'stages' of 'pipeline' is empty");
  std::set<std::string_view> seen;
  for (const std::vector<std::string>& stage : p.stages) {
    if (stage.empty()) c.error(p.loc, "a stage of 'pipeline' has no ops");
    for (const std::string& op : stage)
      if (check_op_name(c, op, p.loc, "a stage") && !seen.insert(op).second)
        c.error(p.loc, fmt::format("op '{}' is in two places of the pipeline", op));
  }
}

}  // namespace

void check_constraints(Check& c) {
  check_phases(c);
  check_regions(c);
  if (c.graph.pipeline) check_pipeline(c, *c.graph.pipeline);
  check_after(c);
}

}  // namespace maco::graph
