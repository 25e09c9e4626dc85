// Kernels of the user's in kernel.cu.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace maco::codegen {

/// The texts of units, each in a namespace cuda_units::<name>, with what they need of CUDA's and
/// MACO's headers; "" if there are none.
std::string cuda_unit_sources(const std::vector<const ir::CudaUnit*>& units);

}  // namespace maco::codegen
