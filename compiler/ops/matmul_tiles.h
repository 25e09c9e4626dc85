// The tiles into which a matmul is cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/cost/machine.h"
#include "compiler/functions/matmul.h"
#include "compiler/functions/matmul_method.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

using functions::kMostMatmulParts;
using functions::matmul_parts;
using functions::MatmulMethod;
using functions::MatmulShape;
using functions::MatmulTiles;
using functions::refuse_matmul;

/// Whether memory holds the maximum number of rows of `a` in every launch. Callers provide only the
/// rows of the launch.
bool has_all_rows(const ir::Tensor& a);

/// The epilogue that passes made of ops behind `op`, a matmul: a body over its sums, then its last
/// inputs.
std::optional<ir::Body> epilogue_of(const ir::Op& op);
/// The type to which the sums of `op`, a matmul, are rounded first. It is the matmul's own type if
/// the epilogue makes a `result` of another type.
ir::DType matmul_sum_dtype(const ir::Op& op, ir::DType result);
/// Whether `op`, a matmul whose types are known, has few rows in every launch, so that it reads its
/// right operand once.
bool is_of_few_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Whether the op's method is one for many rows, however few a launch has.
bool is_by_many_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Whether `op`, a matmul, would be faster if memory held all rows of its first operand, which has
/// only as many as dims say.
bool wants_all_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Whether the op's method does what a stage of matmul needs (functions::Method::takes).
bool method_takes(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine,
                  std::string_view stage);
/// Whether one task may have the same columns of `op` and of another such matmul with the same
/// rows: of few rows, or on tensor cores if every launch has many rows.
bool may_be_paired(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine);
/// Why tasks of `op`, a matmul, can't also send what they store to other ranks, or "". They can on
/// tensor cores, with rows that every launch has and tiles that cover all of K or, if tasks may be
/// mates, half of it. They also can with a few rows, if packets may carry the result.
std::string refuse_to_send(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine,
                           bool may_send_packets, bool may_mate);
/// Whether `op`, a matmul of few rows, takes method_of_sent_tiles(). Then only an allreduce reads
/// its result, and packets can't carry it. It adds in another order. So the answer depends
/// neither on what passes have joined or left apart, nor on whether tiles are sent. The answer is
/// no unless the allreduce names an algorithm.
bool sends_few_rows_in_tiles(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine);
/// Adds what the stages of `op` ask of tiles.
void shape_of_stages(const ir::Graph& graph, const ir::Op& op, MatmulShape& shape);
/// What `op`, a matmul whose types are known, asks of tiles.
MatmulShape matmul_shape(const ir::Graph& graph, const ir::Op& op);
/// How refuse_to_finish describes tiles: the missing ones, and those that suit the matmul alone.
struct TileWords {
  std::string none, others;
};
/// Why a matmul can't also do the work of the op behind it, or "". `plain` is the matmul alone,
/// whose whole result is then handed to that op; `both` does its work, too.
std::string refuse_to_finish(const MatmulShape& plain, const MatmulShape& both,
                             const TileWords& tiles_of, const cost::Machine& machine);
/// The tiles with the least estimated time on `sms` SMs, among those that are not refused; nothing
/// if all are. How much of K they cover, and so the order of additions, depends on the op and the
/// machine alone.
std::optional<MatmulTiles> choose_matmul_tiles(const MatmulShape& shape, const MatmulMethod& method,
                                               const cost::Machine& machine, int32_t sms);
/// Whether tasks with such tiles may be mates, which exchange sums of half of K. Then no other task
/// has to wait for their parts or to add them up.
bool may_halve(const MatmulMethod& method, int64_t K, MatmulTiles tiles,
               const cost::Machine& machine);
/// Whether tasks with such tiles, on tensor cores, may send them or, if they are mates, their
/// halves.
bool may_send(const MatmulShape& shape, const MatmulMethod& method, MatmulTiles tiles,
              const cost::Machine& machine);

/// Makes a method of matmul known to the whole process. To be called before the first graph is
/// read, as the op's attribute `method` gets its name. Returns "", or why it can't be registered.
[[nodiscard]] std::string register_matmul_method(MatmulMethod method);

}  // namespace maco::ops
