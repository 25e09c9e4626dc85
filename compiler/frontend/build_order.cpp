// build_order.cpp: what orders ops besides data: phases, overlap regions, the pipeline, and the
// names in `after` and `phase`.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/frontend/build.h"

namespace maco::frontend {

namespace {

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
    auto text = name == nullptr ? std::nullopt : read_name(c, *name, graph::kPhaseName);
    if (!text) return;
    ir::Phase phase{*text, {}, name->loc};
    if (!graph::give_name(c.check, c.check.phases, "phases", phase.name, phase.loc)) return;
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
      graph::check_phase_name(c.check, c.graph.phases[i].depends_on[k], places[i][k],
                              fmt::format("phase '{}'", c.graph.phases[i].name));
}

void build_regions(BuildContext& c, const Raw& regions) {
  for_each_map(c, regions, "'overlap_regions'", "an overlap region", [&](const Raw& raw) {
    check_keys(c, raw, "an overlap region", {"name", "ops"});
    const Raw* name = require(c, raw, "an overlap region", "name");
    const Raw* ops = require(c, raw, "an overlap region", "ops");
    auto text = name == nullptr ? std::nullopt : read_name(c, *name, graph::kRegionName);
    if (!text || ops == nullptr) return;
    ir::OverlapRegion region{*text, {}, name->loc};
    if (!graph::give_name(c.check, c.check.regions, "overlap regions", region.name, region.loc))
      return;
    bool complete = false;
    std::vector<ir::Loc> places;
    for (auto& [op, loc] :
         read_names(c, *ops, "a member of " + graph::region_text(region), false, &complete)) {
      region.ops.push_back(std::move(op));
      places.push_back(loc);
    }
    if (complete || !region.ops.empty()) graph::check_members(c.check, region, places, ops->loc);
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
    graph::PipelinePlaces places{stages->loc, {}, {}};
    for (const Raw& stage : stages->list) {
      bool complete = false;
      std::vector<std::string> members;
      std::vector<ir::Loc> locs;
      for (auto& [op, loc] : read_names(c, stage, "an op of a stage", false, &complete)) {
        members.push_back(std::move(op));
        locs.push_back(loc);
      }
      if (!complete && members.empty()) continue;
      pipeline.stages.push_back(std::move(members));
      places.stage.push_back(stage.loc);
      places.op.push_back(std::move(locs));
    }
    if (stages->list.empty() || !pipeline.stages.empty())
      graph::check_stages(c.check, pipeline, places);
  }
  c.graph.pipeline = std::move(pipeline);
}

void check_references(BuildContext& c) {
  for (size_t i = 0; i < c.graph.ops.size(); ++i) {
    const ir::Op& op = c.graph.ops[i];
    for (size_t k = 0; k < op.after.size(); ++k)
      graph::check_op_name(c.check, op.after[k], op.after_loc[k], graph::after_of(op));
    if (op.phase)
      graph::check_phase_name(c.check, *op.phase, op.phase_loc, fmt::format("op '{}'", op.name));
  }
}

}  // namespace maco::frontend
