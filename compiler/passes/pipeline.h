// From a graph to a synced Program: all passes in order. pipeline.cpp is the first file of the
// compiler to read.
#pragma once

#include "compiler/passes/manager.h"

namespace maco::passes {

/// Runs all passes in order, or up to options.stop_after. `graph` is inferred (as the frontends
/// return it). Returns the result of the last pass, which is of use only if passes.ok().
Unit run_pipeline(ir::Graph graph, const PipelineOptions& options, PassManager& passes);

/// The names of the passes that run_pipeline runs with these options, in order, up to and including
/// `to` (empty: all).
std::vector<std::string> pipeline_passes(const PipelineOptions& options, std::string_view to = "");

struct PipelineResult {
  bool ok = false;
  Unit unit;  // the synced Program, or what the last pass made
  PassLog log;
};
/// The same with a pass manager of its own.
PipelineResult run_pipeline(ir::Graph graph, const PipelineOptions& options,
                            ir::Diagnostics& diagnostics);

}  // namespace maco::passes
