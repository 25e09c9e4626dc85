// What nvcc declares before a file begins and Clang's headers of CUDA lack.
#pragma once

#include <map>
#include <string>

namespace maco::frontend::cuda {

/// Included before the user's file.
inline constexpr const char* kPreludeFile = "/maco/prelude.h";

/// Files that Clang finds in addition to those on disk or in their place, by path: the prelude, and
/// Clang's threadIdx, blockIdx, blockDim and gridDim with the types that nvcc gives them.
/// `resources`: Clang's own folder; `cuda_folder`: the toolkit's.
std::map<std::string, std::string> prelude_files(const std::string& resources,
                                                 const std::string& cuda_folder);

}  // namespace maco::frontend::cuda
