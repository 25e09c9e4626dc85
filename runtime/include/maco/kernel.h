// From a graph to a kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "maco/graph.h"
#include "maco/result.h"

namespace maco {

/// What shapes a kernel, as the options of macoc do.
struct CompileOptions {
  std::string target = {};  // what code may use: "sm_80", "cpu"; empty: the board's, or "sm_90a"
  std::string board = {};   // a machine of it, "h200"; empty: the target's usual one
  int64_t sms = 0;          // SMs that a rank may use; 0: all of the board's
  bool load_ahead = true;   // parameters are loaded ahead of a task's waits
  bool fuse = true;
  bool prune = true;      // waits that others imply are left out
  bool packets = true;    // small temporaries are handed over in packets
  int max_warnings = 20;  // of a kind that Kernel::warnings() has; 0: all
  /// For sources of ops `cuda`, besides what the ops say: folders of headers, relative to where the
  /// process is, and macros, NAME or NAME=VALUE.
  std::vector<std::string> include_folders = {}, defines = {};
};

/// A compiled graph: proved, and written as CUDA. Immutable; copies share it, and any number of
/// threads may use one at once.
class MACO_API Kernel {
 public:
  /// From a kernel.cu that macoc or source() gave.
  static Result<Kernel> from_source(std::string source);

  /// kernel.cu: one file that needs no others.
  const std::string& source() const;
  const std::string& name() const;
  /// What it was compiled for: CompileOptions::target.
  const std::string& target() const;
  int world() const;
  /// In the order in which the graph declares them.
  const std::vector<TensorInfo>& tensors() const;
  const std::vector<VariableInfo>& dims() const;
  const std::vector<VariableInfo>& scalars() const;
  /// What became of the graph, for people: roles, tasks, what was fused and what not, waits,
  /// memory. Empty of a kernel that came as source.
  const std::string& report() const;
  /// Warnings of the compiler, each with its notes; of those that differ in names and numbers only
  /// CompileOptions::max_warnings, and a note with how many more there are.
  const std::vector<Diagnostic>& warnings() const;

  struct Data;
  explicit Kernel(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  // Moving one copies it: there is no empty kernel.
  Kernel(const Kernel&) = default;
  Kernel& operator=(const Kernel&) = default;
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

/// May be called from several threads at once.
MACO_API Result<Kernel> compile(const Graph& graph, const CompileOptions& options = {});

}  // namespace maco
