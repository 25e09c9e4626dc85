// Into which tiles a matrix product is cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/cost/machine.h"
#include "compiler/functions/matmul.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

struct MatmulShape {
  int64_t max_rows = 1, min_rows = 1, typical_rows = 1;  // of the task's op
  /// How many rows the op has as the user wrote it, at least and at most: they decide how K is
  /// summed.
  ir::Interval plan_rows{1, 1};
  int64_t N = 1, K = 1;
  ir::DType a = ir::DType::BF16, b = ir::DType::BF16;
  ir::DType y = ir::DType::BF16;  // what sums are rounded to first (matmul_sum_dtype)
  bool transpose_b = false;
  bool paired = false;
  int64_t head_dim = 0;   // of heads of the result that turn; 0: none do
  bool appended = false;  // some of its last columns are rows of caches, too
  bool sent = false;      // its tiles go to peers, or halves that mates have of them
  bool all_there = true;  // has_all_rows: boxes may bring rows that a launch doesn't have
};

/// Whether memory has the most rows of `a`, however many a launch has: callers give no more than
/// the launch's.
bool has_all_rows(const ir::Tensor& a);

struct MatmulTiles {
  int64_t BM = 1, BN = 1;
  int64_t BK = 0;  // elements of K; 0: all
  friend bool operator==(const MatmulTiles&, const MatmulTiles&) = default;
};
/// What passes made of ops behind `op`, a matmul: of its sums, then of its last inputs.
std::optional<ir::Body> epilogue_of(const ir::Op& op);
/// What the sums of `op`, a matmul, are rounded to first: the product's type where an epilogue
/// makes a `result` of another type of it.
ir::DType matmul_sum_dtype(const ir::Op& op, ir::DType result);
/// Whether `op`, a matmul whose types are known, has few rows in every launch, so that a product
/// reads its right operand once (Dot).
bool is_of_few_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Whether its method is one for many rows, however few a launch has.
bool is_by_many_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Whether `op`, a matmul, would be quicker if memory had all rows of its first operand, of which
/// it has only as many as dims say.
bool wants_all_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Whether a task may have the same columns of `op` and of another such product of the same rows:
/// by Dot, or on tensor cores where many rows are always there.
bool may_be_paired(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Why tasks of `op`, a matmul, can't turn heads of its result, or "": that is for tensor cores'
/// tiles of all of K and of whole heads, where these take no longer than a rope would save.
std::string refuse_to_turn(const ir::Graph& graph, const ir::Op& op, int64_t head_dim,
                           const cost::Machine& machine);
/// Why tasks of `op`, a matmul, can't write the last columns of its result to caches, of which they
/// have rows, or "": that is for tensor cores' tiles of all of K, where these take no longer than
/// appends would save.
std::string refuse_to_append(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine);
/// Why tasks of `op`, a matmul, can't send what they store to other ranks as well, or "": that is
/// for tensor cores' tiles of all of K, or, if tasks may be mates, of halves, of rows that are
/// always there; or, if what they send may be packets, for a few rows.
std::string refuse_to_send(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine,
                           bool may_send_packets, bool may_mate);
/// Whether `op`, a matmul of few rows, takes Wgmma in place of Dot, since only an allreduce reads
/// its result, and packets can't carry it. That is another order of sums: so the answer doesn't
/// depend on what passes have joined or left apart, nor on whether tiles are sent. It is no as long
/// as the allreduce names no algorithm.
bool sends_few_rows_in_tiles(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine);
/// How a product of so many rows is summed on `machine`.
functions::MatmulMethod choose_matmul_method(const MatmulShape& shape,
                                             const cost::Machine& machine);
/// The tiles with the least estimated time on `sms` SMs, of those that are not refused; none if all
/// are. How much of K they have, and so the order of sums, depends on the op and the machine alone.
std::optional<MatmulTiles> choose_matmul_tiles(const MatmulShape& shape,
                                               functions::MatmulMethod method,
                                               const cost::Machine& machine, int32_t sms);
/// Parts of K: tiles of each give sums of their own, which are added up.
inline int64_t matmul_parts(int64_t K, MatmulTiles tiles) {
  return tiles.BK == 0 ? 1 : (K + tiles.BK - 1) / tiles.BK;
}
inline constexpr int64_t kMostMatmulParts = 8;
/// May tasks that have such tiles be mates, which give each other sums of half of K? No CTA has to
/// be told of their parts then, and none adds them up.
bool may_halve(functions::MatmulMethod method, int64_t K, MatmulTiles tiles,
               const cost::Machine& machine);
/// May tasks that have such tiles, by Mma or Wgmma, send them, or if they are mates halves of them?
bool may_send(const MatmulShape& shape, functions::MatmulMethod method, MatmulTiles tiles,
              const cost::Machine& machine);
/// Why the device function can't take such tiles, or "".
std::string refuse_matmul(const MatmulShape& shape, functions::MatmulMethod method,
                          MatmulTiles tiles, const cost::Machine& machine);

}  // namespace maco::ops
