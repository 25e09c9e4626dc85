// From a graph to a kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "maco/graph.h"
#include "maco/result.h"

namespace maco {

/// What determines a kernel, as the options of macoc.
struct CompileOptions {
  std::string target = {};  // what code may use: "sm_80", "cpu"; empty: the board's, or "sm_90a"
  std::string board = {};   // a machine of the target, "h200"; empty: the target's usual one
  int64_t sms = 0;          // SMs that a rank may use; 0: all of the board's
  bool load_ahead = true;   // parameters are loaded ahead of a task's waits
  bool fuse = true;         // join ops that are faster together
  bool prune = true;        // leave out waits that others imply
  bool packets = true;      // hand over small temporaries in packets
  int max_warnings = 20;    // of each kind in Kernel::warnings(); 0: all
  /// For sources of ops `cuda`, in addition to what the ops name: folders of headers, relative to
  /// the process's folder, and macros, NAME or NAME=VALUE.
  std::vector<std::string> include_folders = {}, defines = {};
  /// Rules of fusion that are left out, as --no-fuse takes them: "norm", "send".
  std::vector<std::string> no_fuse = {};
};

/// A compiled graph: proved, and written as CUDA. Immutable. Copies share it, and any number of
/// threads may use one at once.
class MACO_API Kernel {
 public:
  /// From a kernel.cu made by macoc or source().
  static Result<Kernel> from_source(std::string source);

  /// kernel.cu: one file that needs no others.
  const std::string& source() const;
  const std::string& name() const;
  /// The target for which it was compiled: CompileOptions::target.
  const std::string& target() const;
  int world() const;
  /// In the order in which the graph declares them.
  const std::vector<TensorInfo>& tensors() const;
  const std::vector<VariableInfo>& dims() const;
  const std::vector<VariableInfo>& scalars() const;
  /// What became of the graph, for people: roles, tasks, what was fused and what wasn't, waits,
  /// memory. Empty for a kernel that came as source.
  const std::string& report() const;
  /// Warnings of the compiler, each with its notes. Of warnings that differ only in names and
  /// numbers there are CompileOptions::max_warnings, and a note says how many more there are.
  const std::vector<Diagnostic>& warnings() const;

  struct Data;
  explicit Kernel(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  // Moving a kernel copies it: there is no empty kernel.
  Kernel(const Kernel&) = default;
  Kernel& operator=(const Kernel&) = default;
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

/// Several threads may call it at once.
MACO_API Result<Kernel> compile(const Graph& graph, const CompileOptions& options = {});

}  // namespace maco
