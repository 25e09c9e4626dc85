// The kernels of ops `cuda`.
#pragma once

#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::frontend {

/// How sources are read.
struct CudaSettings {
  std::string target;  // "sm_90a", "cpu"
  /// Of a command line, besides those of each op: folders of headers, relative to where the process
  /// is, and macros, NAME or NAME=VALUE.
  std::vector<std::string> include_folders, defines;
};

/// Reads the kernels of all ops `cuda` of an inferred graph that have none yet: gives it their
/// units (Graph::cuda_units), and the ops what they say of those. False, having reported, if a
/// kernel can't be a task, or there is nothing here to read CUDA with.
bool read_cuda_kernels(ir::Graph& graph, const CudaSettings& settings,
                       ir::Diagnostics& diagnostics);

/// A graph that would use the kernel of a CUDA source, as DSL, with what its declaration doesn't
/// say left to its reader; of the file's only kernel if `kernel` is "". "", having reported, if
/// there is none, or nothing to read it with.
std::string graph_of_cuda_kernel(const std::string& path, const std::string& kernel,
                                 const CudaSettings& settings, ir::Diagnostics& diagnostics);

/// What reads CUDA: where it was found, or why there is nothing.
std::string describe_cuda_reader();

}  // namespace maco::frontend
