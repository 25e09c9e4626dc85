// Tests that run kernels on a device: GPUs by tools/gpu-test.sh, the CPU target in CI.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "runtime/host/session.h"
#include "tools/run_graph.h"

namespace maco::gpu_test {

struct Device {
  bool cuda = false;
  int gpus = 0;          // that may be used
  std::string examples;  // folder of the example graphs
  int lock = -1;         // a file to lock while sessions are open; -1: nobody else runs any
};

/// Where the ranks of a test run.
struct Placement {
  int64_t world = 1;
  int ranks_per_gpu = 1;
  int gpus() const { return static_cast<int>((world + ranks_per_gpu - 1) / ranks_per_gpu); }
  std::string str() const {
    return std::to_string(world) + " ranks, " + std::to_string(ranks_per_gpu) + " a GPU";
  }
};
/// Ways to place `world` ranks on GPUs: each on its own, two on one, as few GPUs as these allow,
/// all on one; including those for which there are too few GPUs. One way on the CPU.
std::vector<Placement> placements(const Device& device, int64_t world);

struct Case {
  std::string name;
  /// "" if the test passed, else what was wrong. Throws Skip if the device is too small.
  std::function<std::string()> run;
};
struct Skip {
  std::string reason;
};

/// Compiles a text (DSL) for the device; throws std::runtime_error with the diagnostics.
api::Compiled compile_text(const Device& device, const std::string& text,
                           const Placement& placement, bool load_ahead = true);
std::unique_ptr<runtime::Session> make_session(const Device& device, const std::string& kernel,
                                               const Placement& placement,
                                               runtime::SessionOptions options,
                                               runtime::Status& status);
/// Throws Skip where ranks share a GPU, which NCCL doesn't take.
void skip_shared(const Device& device, const Placement& placement);
/// Fills all inputs, params and states of all ranks.
void bind(const ir::Graph& graph, runtime::Session& session, uint64_t seed);
/// The bytes of tensor `name` on a rank.
std::vector<std::byte> read(runtime::Session& session, const std::string& name, int rank);

/// Adds a case for every placement of `world` ranks, skipped where the device has too few GPUs.
void add_cases(const Device& device, std::vector<Case>& cases, int64_t world,
               const std::string& name, const std::function<std::string(const Placement&)>& run);
void add_example_cases(const Device& device, std::vector<Case>& cases);
void add_capture_cases(const Device& device, std::vector<Case>& cases);
void add_fault_cases(const Device& device, std::vector<Case>& cases);
void add_profile_cases(const Device& device, std::vector<Case>& cases);
void add_session_cases(const Device& device, std::vector<Case>& cases);

}  // namespace maco::gpu_test
