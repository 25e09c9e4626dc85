// Reads the kernels of ops `cuda`.
#pragma once

#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::frontend {

/// How sources are read.
struct CudaSettings {
  std::string target;  // "sm_90a", "cpu"
  /// From the command line, in addition to those of each op: folders of headers, relative to the
  /// process's folder, and macros, NAME or NAME=VALUE.
  std::vector<std::string> include_folders, defines;
};

/// Reads the kernels of all ops `cuda` of an inferred graph that have none yet. Adds their units to
/// the graph (Graph::cuda_units) and what they say to the ops. Returns false, after reporting, if a
/// kernel can't be a task, or no reader of CUDA is installed.
bool read_cuda_kernels(ir::Graph& graph, const CudaSettings& settings,
                       ir::Diagnostics& diagnostics);

/// A draft of a graph in the DSL that uses a kernel of a CUDA source, the file's only one if
/// `kernel` is "". What the declaration doesn't say is left to the reader. Returns "", after
/// reporting, if there is no such kernel or no reader of CUDA.
std::string graph_of_cuda_kernel(const std::string& path, const std::string& kernel,
                                 const CudaSettings& settings, ir::Diagnostics& diagnostics);

/// Where the reader of CUDA was found, or why there is none.
std::string describe_cuda_reader();

}  // namespace maco::frontend
