// The ranks that a reference names, as a list.
#pragma once

#include <vector>

#include "ir/program.h"

namespace maco::proofs {

inline std::vector<int> ranks_of(ir::RankRef ref, int rank, int world) {
  const ir::Ranks ranks = ir::resolve(ref, rank, world);
  return {ranks.begin(), ranks.end()};
}

}  // namespace maco::proofs
