// From a graph to a synced Program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

struct PipelineOptions {
  std::string target = "sm_90a";  // names of cost/machine.h
  std::string board;              // empty: the target's default
  int64_t sms = 0;                // SMs that one rank may use; 0: all of the board's
  bool load_ahead = true;
  bool fuse = true;        // --no-fuse
  bool prune = true;       // --no-prune
  std::string stop_after;  // name of the last pass to run; empty: all
  // --verify=each: prove the Program after each pass that changed it
  bool verify_each = false;
  /// Called after each pass that succeeded; may replace the unit by an equal one.
  std::function<void(const Pass&, Unit&)> after_pass;
};

struct PipelineResult {
  bool ok = false;
  Unit unit;  // the synced Program if all ran, else what the last pass made
  std::vector<std::pair<std::string, double>> seconds;  // by pass
  std::map<std::string, int64_t> statistics;
  /// verify_each: the pass after which the Program was wrong; empty if none was.
  std::string broken_by;
  std::string right_after;  // the last pass after which nothing was wrong
};

/// What the passes are told of the target and by `options`, for a Unit; a Program has its own
/// target. Nothing, having reported, if there is no such target or a rank is to use more SMs than
/// it has.
std::optional<Context> make_context(const Unit& unit, const PipelineOptions& options,
                                    ir::Diagnostics& diagnostics);

/// Errors are in `diagnostics`. `graph` is inferred (as the frontends return it).
PipelineResult run_pipeline(const ir::Graph& graph, const PipelineOptions& options,
                            ir::Diagnostics& diagnostics);

}  // namespace maco::passes
