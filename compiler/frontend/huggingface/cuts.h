// How tensor parallelism divides an axis among ranks. A cut is an object of expressions:
//   whole    the extent on disk          local     the extent that a rank has
//   copies   how many ranks have each part (1, but for heads of keys and values)
//   cut      for each rank its runs, [begin, end, from] each
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/frontend/huggingface/expression.h"

namespace maco::frontend::huggingface {

/// Equal parts, in order; where `whole` has no such parts, they are larger, and the last ones have
/// zeros at their end.
Value even_cut(int64_t whole, int64_t world);
/// Heads of keys and values: so many for each rank, in order, and heads of zeros at the end; fewer
/// heads than ranks go to several ranks each.
Value key_cut(int64_t heads, int64_t head_dim, int64_t world);
/// Heads of queries, with those of keys that key_cut gives the same rank.
Value query_cut(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t world);

/// Where elements [begin, end) of a rank's part come from: element `from` on of the whole.
struct Run {
  int64_t begin = 0, end = 0, from = 0;
};
/// Of one rank, in order; what no run covers is zero.
std::vector<Run> runs_of(const Value& cut, int64_t rank);

}  // namespace maco::frontend::huggingface
