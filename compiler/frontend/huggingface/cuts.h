// How tensor parallelism divides an axis among ranks. A cut is an object of expressions:
//   whole    the extent on disk          local     the extent that a rank has
//   copies   how many ranks have each part (1, but for heads of keys and values)
//   cut      for each rank its runs, [begin, end, from] each
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/frontend/huggingface/expression.h"

namespace maco::frontend::huggingface {

/// Equal parts, in order. If `whole` has no such parts, parts are rounded up, and the last ones end
/// in zeros.
Value even_cut(int64_t whole, int64_t world);
/// Heads of keys and values: equally many for each rank, in order, with heads of zeros at the end.
/// If there are fewer heads than ranks, several ranks have the same head.
Value key_cut(int64_t heads, int64_t head_dim, int64_t world);
/// Heads of queries, for those key heads that key_cut gives the same rank.
Value query_cut(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t world);

/// The source of elements [begin, end) of a rank's part: the whole's elements from `from` on.
struct Run {
  int64_t begin = 0, end = 0, from = 0;
};
/// The runs of one rank, in order; elements in no run are zero.
std::vector<Run> runs_of(const Value& cut, int64_t rank);

}  // namespace maco::frontend::huggingface
