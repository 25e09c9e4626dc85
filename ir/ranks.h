// Sets of ranks: bit r of a word is rank r.
#pragma once

#include <cstdint>

namespace maco::ir {

inline constexpr int64_t kMaxWorld = 64;

/// The set of all ranks of a world.
constexpr uint64_t all_ranks(int64_t world) {
  return world >= kMaxWorld ? ~uint64_t{0} : (uint64_t{1} << world) - 1;
}

}  // namespace maco::ir
