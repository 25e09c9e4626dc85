#include "compiler/ops/collectives/algorithms.h"

#include "ir/check.h"

namespace maco::ops {

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> table = {
      allreduce_oneshot(), allreduce_twoshot(), allgather_oneshot(), reduce_scatter_oneshot(),
      alltoall(),          broadcast(),         ring_shift(),        barrier()};
  return table;
}

std::vector<const Algorithm*> algorithms_of(const std::string& op) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& a : algorithms())
    if (a.op == op) found.push_back(&a);
  return found;
}

void tile_by_algorithm(TileContext& context) {
  const std::string word = context.word("algorithm", "");
  for (const Algorithm* a : algorithms_of(context.op().kind))
    if (a->word == word) return a->tile(context);
  MACO_CHECK(false, word);
}

}  // namespace maco::ops
