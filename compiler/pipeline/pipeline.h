// From a graph to a synced Program: all passes in order. pipeline.cpp is the first file of the
// compiler to read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/pipeline/manager.h"

namespace maco::passes {

/// The pass behind which a graph is what a kernel is compiled of: with the kernels that it names,
/// and one choice of roles. Nothing of it is decided yet.
inline constexpr std::string_view kLastOfSource = "take-variant";

/// The names of the passes that run_pipeline runs with these options, in order, up to and including
/// `to` (empty: all).
std::vector<std::string> pipeline_passes(const PipelineOptions& options, std::string_view to = "");

struct PipelineResult {
  bool ok = false;
  Unit unit;         // the synced Program, or what the last pass made
  ir::Graph source;  // the graph behind kLastOfSource
  PassLog log;
};
/// Runs all passes in order, or up to options.stop_after. `graph` is inferred (as the frontends
/// return it). The result is of use only if it is ok.
PipelineResult run_pipeline(ir::Graph graph, const PipelineOptions& options,
                            ir::Diagnostics& diagnostics);
/// The same with a given pass manager; `source` gets the graph behind kLastOfSource unless null.
Unit run_pipeline(ir::Graph graph, const PipelineOptions& options, PassManager& passes,
                  ir::Graph* source = nullptr);

}  // namespace maco::passes
