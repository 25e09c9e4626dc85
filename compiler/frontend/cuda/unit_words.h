// Names that a user's text can't give to its own things: they are macros of kernel.cu while its
// units are read.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace maco::frontend::cuda {

/// What runtime/device/cuda/words.cuh defines; names that begin with "maco" are its own, too.
inline constexpr std::array<std::string_view, 27> kUnitWords = {"threadIdx",
                                                                "blockIdx",
                                                                "gridDim",
                                                                "blockDim",
                                                                "__ldg",
                                                                "__syncthreads",
                                                                "__syncthreads_count",
                                                                "__syncthreads_and",
                                                                "__syncthreads_or",
                                                                "__syncwarp",
                                                                "__shfl_sync",
                                                                "__shfl_up_sync",
                                                                "__shfl_down_sync",
                                                                "__shfl_xor_sync",
                                                                "__any_sync",
                                                                "__all_sync",
                                                                "__ballot_sync",
                                                                "__match_any_sync",
                                                                "__match_all_sync",
                                                                "__reduce_add_sync",
                                                                "__reduce_min_sync",
                                                                "__reduce_max_sync",
                                                                "__reduce_and_sync",
                                                                "__reduce_or_sync",
                                                                "__reduce_xor_sync",
                                                                "__shared__",
                                                                "__maxnreg__"};

inline bool is_unit_word(std::string_view name) {
  return name.substr(0, 5) == "maco_" || name == "maco" ||
         std::find(kUnitWords.begin(), kUnitWords.end(), name) != kUnitWords.end();
}

}  // namespace maco::frontend::cuda
