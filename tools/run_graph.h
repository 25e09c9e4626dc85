// maco-run's work: binds tensors, launches, checks, and writes outputs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"
#include "runtime/host/settings.h"
#include "tools/driver.h"
#include "tools/weights.h"

namespace maco::tools {

struct ScalarArgument {
  int64_t value = 0;
  bool counts = false;  // "17+": one more for each launch
};

struct RunOptions {
  std::vector<std::string> inputs;  // safetensors patterns
  bool require_inputs = false;      // inputs and params that no file binds are errors
  std::string outputs;              // a pattern; empty: none
  std::string device = "cuda";      // what the session runs on, for messages
  uint64_t seed = 0;
  std::map<std::string, ScalarArgument> scalars;
  std::map<std::string, int64_t> dims;
  int64_t launches = 1;
  bool check = false;
  std::optional<double> rtol;
  int bench = 0;
  uint64_t timeout_ms = 0;           // for blocks of original kernels, in the reference; 0: none
  const Weights* weights = nullptr;  // the session's params come from these; null: not
  runtime::Group* group = nullptr;   // the processes that run the ranks; null: this one does
};

/// Runs a loaded kernel as told; `graph` is the one from which it was compiled. Returns the tool's
/// exit status, after reporting.
int run_graph(const ir::Graph& graph, runtime::Session& session, const RunOptions& options,
              const Console& console);

/// Writes a rank's tensors for a launch of a replay: inputs differ in each launch, params and
/// states are written before launch 0, outputs are poisoned. `values`: all dims and scalars.
runtime::Status write_tensors(const ir::Graph& graph, runtime::Session& session,
                              const runtime::LaunchValues& values, uint64_t seed, int rank,
                              int launch);

/// The settings that must be the same in all processes, for a run on `device`. If processes don't
/// check, each may name its own files.
runtime::Settings settings_of(const ir::Graph& graph, const RunOptions& options,
                              const std::string& device);

/// Checks names and ranges of dims and scalars for all launches, and that the outputs' files can be
/// written. Missing scalars get the start of their range. Returns false if an error was reported.
bool check_arguments(const ir::Graph& graph, RunOptions& options, const Console& console);

}  // namespace maco::tools
