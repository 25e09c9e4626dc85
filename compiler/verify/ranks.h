// The ranks that a RankRef names, one by one.
#pragma once

#include "ir/program.h"

namespace maco::verify {

/// Calls `visit(rank)` for each rank that `ref` means for a task on `rank`, ascending.
template <class Visit>
void each_named(ir::RankRef ref, int rank, int world, const Visit& visit) {
  switch (ref.kind) {
    case ir::RankRef::Kind::Self: return visit(rank);
    case ir::RankRef::Kind::Rank: return visit(ref.n);
    case ir::RankRef::Kind::Shift:
      return visit(static_cast<int>(((int64_t{rank} + ref.n) % world + world) % world));
    case ir::RankRef::Kind::Others:
    case ir::RankRef::Kind::All: break;
  }
  for (int r = 0; r < world; ++r)
    if (r != rank || ref.kind == ir::RankRef::Kind::All) visit(r);
}

}  // namespace maco::verify
