#include "compiler/passes/pipeline.h"

#include "compiler/frontend/cuda_kernels.h"

namespace maco::passes {

Unit run_pipeline(ir::Graph graph, const PipelineOptions& options, PassManager& passes) {
  // On the graph. What can't be compiled is refused by name before anything is changed.
  graph = passes.run("check-support", std::move(graph));

  // From here on each meaning has one spelling, collectives of one rank are copies, and no op
  // writes a state that it still reads.
  graph = passes.run("canonicalize", std::move(graph));

  // From here on operands of matmuls lie in memory as loads want them, copied if need be.
  graph = passes.run("prepare-operands", std::move(graph));

  // From here on each collective names its algorithm.
  graph = passes.run("choose-collectives", std::move(graph));

  // From here on ops that are faster together are one op each: attention with the rows appended to
  // its caches, elementwise ops with the matmul before them, matmuls with the norms that they read
  // and the collectives to which they send.
  if (options.fuse) graph = passes.run("fuse", std::move(graph));

  // From here on sm_roles is a list of ranges, and every kind of op has SMs.
  graph = passes.run("assign-roles", std::move(graph));

  // From here on each op names its method and its tiles.
  graph = passes.run("choose-tiles", std::move(graph));
  if (passes.stopped()) return graph;

  // From here on there are tasks with the regions they touch, and dependencies on a rank point
  // forward.
  ir::Program program = passes.lower("tile", std::move(graph));

  // Small temporaries between tasks become packets, with hints to wait for.
  if (options.packets) program = passes.run("send-packets", std::move(program));

  // From here on temporaries and slots have addresses; each slot has one of its own.
  program = passes.run("plan-memory", std::move(program));

  // From here on each task has an SM and a place in its stream.
  program = passes.run("schedule", std::move(program));

  // From here on every two tasks that touch the same bytes, one writing, are ordered.
  program = passes.run("insert-sync", std::move(program));

  // The same order with fewer waits.
  if (options.prune) program = passes.run("prune-sync", std::move(program));

  // Slots that are never in use at once share their addresses.
  program = passes.run("share-slots", std::move(program));

  // The proof, from the Program alone.
  return passes.run("verify", std::move(program));
}

frontend::CudaSettings cuda_settings(const PipelineOptions& options) {
  return {options.target, options.include_folders, options.defines};
}

std::vector<std::string> pipeline_passes(const PipelineOptions& options, std::string_view to) {
  std::vector<std::string> names;
  for (const Pass& p : registry()) {
    const bool left_out = (p.name == "fuse" && !options.fuse) ||
                          (p.name == "prune-sync" && !options.prune) ||
                          (p.name == "send-packets" && !options.packets);
    if (!left_out) names.push_back(p.name);
    if (p.name == to) break;
  }
  return names;
}

PipelineResult run_pipeline(ir::Graph graph, const PipelineOptions& options,
                            ir::Diagnostics& diagnostics) {
  PassManager passes(make_context(options, diagnostics), options, diagnostics);
  PipelineResult result;
  if (!frontend::read_cuda_kernels(graph, cuda_settings(options), diagnostics)) {
    result.unit = std::move(graph);
    return result;
  }
  result.unit = run_pipeline(std::move(graph), options, passes);
  result.ok = passes.ok();
  result.log = passes.log();
  return result;
}

}  // namespace maco::passes
