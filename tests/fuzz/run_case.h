// Compiles graphs in batches, runs them on the CPU target or on GPUs and compares them with the
// reference.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/pipeline/options.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "runtime/cpu/compile.h"
#include "runtime/host/session.h"

namespace maco::fuzz {

struct Case {
  std::string name;  // "seed 17"
  std::string text;  // DSL
  std::vector<runtime::LaunchValues> launches;
  uint64_t seed = 0;            // of values, executors and the first epoch
  uint64_t timeout_ms = 60000;  // without progress of any rank
  passes::PipelineOptions pipeline;
  /// Index in the batch of a case whose results must be the same bits, or -1.
  int same_as = -1;
};

/// Where a batch runs.
struct Where {
  int gpus = 0;               // which the ranks of each graph share; 0: the CPU target
  bool check_access = false;  // accesses against declared regions; CPU target only
  bool nowhere = false;       // only run the passes
  bool quick = false;         // kernels are optimised less; CPU target only
};

/// A case through the pipeline, with a print and a parse between all passes.
struct Prepared {
  Case c;
  ir::Graph graph;      // inferred
  ir::Program program;  // synced
  std::string kernel;
  std::string error;  // why there is no kernel
};
Prepared prepare(Case c, const Where& where);

/// The bytes of every output and state, by "'y' on rank 1 after launch 0".
using Results = std::map<std::string, std::vector<std::byte>>;

/// Runs kernel `index` of `library` on fibres and on threads with jitter; what went wrong, or "".
std::string run(const Prepared& p, const std::shared_ptr<runtime::CpuLibrary>& library,
                size_t index, bool check_access, Results& results);

/// Compiles a batch and runs it launch by launch. On the CPU target its kernels are one translation
/// unit, and run on fibres and on threads with jitter; on GPUs it runs twice, from different
/// epochs. Results are compared with the reference and with each other; what no launch may touch is
/// compared with its old state. For each case what went wrong, or "".
struct BatchResult {
  std::vector<Prepared> prepared;
  std::vector<std::string> errors;
  double prepare_s = 0, compile_s = 0, run_s = 0;
};
BatchResult run_batch(std::vector<Case> cases, const Where& where);

/// Prints on standard error, if the process crashes, which case a thread was running.
void report_crashes();

}  // namespace maco::fuzz
