// read_kernels.cpp: CUDA kernels of the user's become units of the graph (ir::CudaUnit), which hold
// all that codegen emits of them. Later passes read no files.
#include "compiler/pipeline/read_kernels.h"

#include "compiler/frontend/cuda_kernels.h"

namespace maco::passes {

bool read_kernels(ir::Graph& graph, PassContext& context) {
  return frontend::read_cuda_kernels(
      graph, {context.machine.target, context.include_folders, context.defines},
      context.diagnostics);
}

}  // namespace maco::passes
