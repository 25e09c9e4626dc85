// The pipeline: all passes in their order, with what holds from each on. From this list come
// --list-passes, --print-after and the docs.
#include "compiler/pipeline/pipeline.h"

#include <utility>

#include "compiler/pipeline/read_kernels.h"

namespace maco::passes {

const std::vector<Pass>& registry() {
  static const std::vector<Pass> table = {
      // From here on the graph holds all that is compiled: no pass reads files.
      {"read-kernels", "the CUDA kernels that ops name, as text in the graph", Form::Graph,
       Form::Cut, Form::Graph, read_kernels, nullptr, nullptr},

      // From here on there is one choice of roles, which every kernel has for itself.
      {"take-variant", "one of the variants of sm_roles (--variant)", Form::Graph, Form::Cut,
       Form::Graph, take_variant, nullptr, nullptr},

      // What can't be compiled is refused by name before anything is changed.
      {"check-support", "refuse by name what can't be compiled", Form::Graph, Form::Cut,
       Form::Supported, check_support, nullptr, nullptr},

      // From here on each meaning has one spelling, collectives of one rank are copies, and no op
      // writes a state that it still reads.
      {"canonicalize", "one spelling for each meaning; drop what nothing uses", Form::Supported,
       Form::Cut, Form::Canonical, canonicalize, nullptr, nullptr},

      // From here on operands of matmuls lie in memory as loads want them, copied if need be.
      {"prepare-operands", "operands of products to where loads are quick", Form::Canonical,
       Form::Cut, Form::Canonical, prepare_operands, nullptr, nullptr},

      // From here on each collective names its algorithm.
      {"choose-collectives", "an algorithm for each collective", Form::Canonical, Form::Cut,
       Form::Chosen, choose_collectives, nullptr, nullptr},

      // From here on ops that are faster together are one op each: attention with the rows
      // appended to its caches, elementwise ops with the matmul before them, matmuls with the
      // norms that they read and the collectives to which they send.
      {"fuse", "one op of those that are faster together, by rules (--no-fuse)", Form::Chosen,
       Form::Cut, Form::Chosen, fuse, nullptr, nullptr, &PipelineOptions::fuse},

      // From here on sm_roles is a list of ranges, and every kind of op has SMs.
      {"assign-roles", "which SMs compute and which communicate", Form::Chosen, Form::Cut,
       Form::Roles, assign_roles, nullptr, nullptr},

      // From here on each op names its method and its tiles.
      {"choose-tiles", "a method and a tile for each op", Form::Roles, Form::Cut, Form::Cut,
       choose_tiles, nullptr, nullptr},

      // From here on there are tasks with the regions they touch, and dependencies on a rank point
      // forward.
      {"tile", "cut ops into tasks with the regions they touch", Form::Cut, Form::Cut, Form::Tiled,
       nullptr, tile, nullptr},

      // Small temporaries between tasks become packets, with hints to wait for.
      {"send-packets", "small temporaries as packets, whose flags show that they are there",
       Form::Tiled, Form::Tiled, Form::Tiled, nullptr, nullptr, send_packets,
       &PipelineOptions::packets},

      // From here on temporaries and slots have addresses; each slot has one of its own.
      {"plan-memory", "addresses of temporaries, by lifetime and branch, and of slots", Form::Tiled,
       Form::Tiled, Form::Planned, nullptr, nullptr, plan_memory},

      // From here on each task has an SM and a place in its stream.
      {"schedule", "an SM and a place in its stream for each task", Form::Planned, Form::Planned,
       Form::Scheduled, nullptr, nullptr, schedule},

      // From here on every two tasks that touch the same bytes, one writing, are ordered.
      {"insert-sync", "events for every dependency between regions", Form::Scheduled,
       Form::Scheduled, Form::Synced, nullptr, nullptr, insert_sync},

      // The same order with fewer waits.
      {"prune-sync", "remove waits that stream order or other waits imply", Form::Synced,
       Form::Synced, Form::Synced, nullptr, nullptr, prune_sync, &PipelineOptions::prune},

      // Slots that are never in use at once share their addresses.
      {"share-slots", "slots that are never in use at once in one place", Form::Synced,
       Form::Synced, Form::Synced, nullptr, nullptr, share_slots},

      // The proof, from the Program alone.
      {"verify", "prove what the Program's stage promises", Form::Tiled, Form::Synced, Form::Tiled,
       nullptr, nullptr, verify},
  };
  return table;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass& p : registry())
    if (p.name == name) return &p;
  return nullptr;
}

std::vector<std::string> pipeline_passes(const PipelineOptions& options, std::string_view to) {
  std::vector<std::string> names;
  for (const Pass& p : registry()) {
    if (!p.asked || options.*p.asked) names.push_back(p.name);
    if (p.name == to) break;
  }
  return names;
}

Unit run_pipeline(ir::Graph graph, const PipelineOptions& options, PassManager& passes,
                  ir::Graph* source) {
  Unit unit = std::move(graph);
  for (const std::string& name : pipeline_passes(options)) {
    unit = passes.run(name, std::move(unit));
    if (source && name == kLastOfSource) *source = std::get<ir::Graph>(unit);
  }
  return unit;
}

PipelineResult run_pipeline(ir::Graph graph, const PipelineOptions& options,
                            ir::Diagnostics& diagnostics) {
  PassManager passes(make_context(options, diagnostics), options, diagnostics);
  PipelineResult result;
  result.unit = run_pipeline(std::move(graph), options, passes, &result.source);
  result.ok = passes.ok();
  result.log = passes.log();
  return result;
}

}  // namespace maco::passes
