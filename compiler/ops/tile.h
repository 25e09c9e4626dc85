// What an op's tile rule sees: its operands as matrices, and the functions that make calls and
// tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/ops/collectives/messages.h"
#include "compiler/ops/op.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// A tensor as a matrix: all axes but the last are rows. Rows depend on dims if axis 0 does; then
/// min_rows may be less than max_rows. With one axis: rows = 1, cols = extent; but rows = extent,
/// cols = 1 if the extent depends on dims.
struct Mat {
  ir::BufferId buffer{};
  ir::DType dtype = ir::DType::F32;
  ir::Expr rows;  // over dims
  int64_t min_rows = 1, max_rows = 1;
  int64_t cols = 1;
  bool is_param = false;  // never written while running: may be read ahead
  bool dynamic() const { return !rows.is_constant(); }
  int64_t max_elements() const { return max_rows * cols; }
};

/// [r0, r1) x [c0, c1) of `m`, clipped to its maximum extent.
ir::Region box(const Mat& m, int64_t r0, int64_t r1, int64_t c0, int64_t c1);
ir::Region whole(const Mat& m);
/// Elements [begin, end) of `m`, row-major, clipped: a region of one row (pitch = max_elements).
ir::Region flat(const Mat& m, int64_t begin, int64_t end);
/// How many tiles of `size` cover `extent`.
inline int64_t tiles_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }
ir::Access read(ir::Region r);
ir::Access write(ir::Region r);
ir::Access may_write(ir::Region r);

/// Whether tasks keep the Program's order, which priorities would change.
bool in_order(const ir::Graph& graph);
/// Whether tasks of ops of this kind may be mates: two neighbouring SMs run them by the Program's
/// roles, and tasks keep the Program's order.
bool may_mate(const ir::Graph& graph, const ir::Program& program, std::string_view kind);

class TileContext {
 public:
  /// A Program has at most this many tasks: a kernel's tables, and their proof, grow with each
  /// task. 70 layers of a model on all of a GPU's SMs have some 100,000.
  static constexpr size_t kMostTasks = size_t{1} << 21;
  /// No tile has more of an axis, so that what rules compute of extents fits in 64 bits.
  static constexpr int64_t kMostExtent = int64_t{1} << 40;
  /// Thrown by the task after the last allowed one, or when more are announced; the tile pass
  /// reports it.
  struct TooManyTasks {};
  /// Thrown by announce_all if only the number of tasks is wanted.
  struct Counted {};

  /// `messages`: those of the graph, which contexts for several of its ops share; null: they are
  /// found when first needed.
  TileContext(const ir::Graph& graph, ir::OpId op, ir::Program& program,
              const cost::Machine& machine, const std::vector<ir::BufferId>& buffer_of_tensor,
              ir::Diagnostics& diagnostics, std::shared_ptr<Messages> messages = nullptr);
  /// A context for another op of the same graph and Program.
  TileContext beside(ir::OpId op);
  const ir::Graph& graph() const { return graph_; }
  ir::OpId id() const { return op_; }
  const ir::Op& op() const { return graph_[op_]; }
  const cost::Machine& machine() const { return machine_; }
  int64_t world() const { return graph_.world; }
  ir::Program& program() { return program_; }
  const ir::Program& program() const { return program_; }

  Mat in(int i) const { return mat(op().in[static_cast<size_t>(i)]); }
  Mat out(int i) const { return mat(op().out[static_cast<size_t>(i)]); }
  Mat mat(ir::TensorId tensor) const;
  const ir::Shape& shape(ir::TensorId tensor) const { return graph_[tensor].shape; }
  Messages& messages();

  /// Attributes, as in InferContext.
  bool has(const std::string& attr) const;
  int64_t integer(const std::string& attr, int64_t default_value) const;
  double number(const std::string& attr, double default_value) const;
  bool flag(const std::string& attr, bool default_value) const;
  std::string word(const std::string& attr, const std::string& default_value) const;
  std::optional<ir::Expr> expr(const std::string& attr) const;
  std::vector<ir::Expr> list(const std::string& attr) const;

  /// How the op is cut: as the graph says; where that is open, as the op would choose.
  Cut cut() const;
  /// Whether the op can be cut as the graph says. Reports if not.
  bool check_cut();
  /// The function may_mate for this graph and Program.
  bool may_mate(std::string_view kind) const;
  /// Whether tasks of this op may follow those of ops of another kind, one by one on their SMs: the
  /// same SMs run both, in the Program's order.
  bool may_follow(std::string_view kind) const;

  /// A parameter for a number known at launch: a constant if `e` is one (after substituting world),
  /// else an entry of Program::values (an existing one is used again). Device code reads either
  /// through C::name::get(ctx).
  ir::Param value(std::string name, const ir::Expr& e);
  /// The range of `e`, both ends included.
  ir::Interval range(const ir::Expr& e) const;
  /// The value of `e` in the launch for which costs are computed.
  int64_t typical(const ir::Expr& e) const;

  /// Makes a call of device function maco::ops::<function>, and checks it against
  /// compiler/functions. Operands come in the order in which the function numbers them.
  ir::CallId call(std::string function, std::vector<ir::Param> params,
                  std::vector<ir::BufferId> operands, std::vector<ir::Load> loads = {}) {
    return call_with(std::move(function), {}, std::move(params), std::move(operands),
                     std::move(loads));
  }
  /// Likewise, of a function with stages (functions::Stage), in their order.
  ir::CallId call_with(std::string function, std::vector<std::string> stages,
                       std::vector<ir::Param> params, std::vector<ir::BufferId> operands,
                       std::vector<ir::Load> loads = {});
  /// Declares what each of the call's tasks moves, by indices into its accesses. The verifier
  /// proves collectives by following these transfers.
  void moves(ir::CallId call, std::vector<ir::Transfer> transfers) {
    program_[call].transfers = std::move(transfers);
  }
  /// Throws TooManyTasks if `tasks` more tasks, the least that the op will make, would be too many.
  /// Called before anything is made for each of them.
  void room_for(int64_t tasks) const;
  /// Announces that the op will make `tasks` more tasks than announced so far. Rules announce tasks
  /// before they make them, so that too many are refused at once.
  void announce(int64_t tasks);
  /// The same, for an op that makes these tasks and no others.
  void announce_all(int64_t tasks);
  /// Makes announce_all end the rule. `before`: tasks that the Program has besides the op's.
  void only_count(size_t before);
  size_t announced() const { return announced_; }

  /// Makes a task of `call`. The tile pass adds overlap, phases and priority of the op.
  ir::TaskId task(ir::CallId call, uint32_t tile, std::vector<ir::Access> accesses,
                  ir::Role role = ir::Role::Compute, uint64_t ranks = ~uint64_t{0});
  /// Makes a buffer for the op: a Temp (private) or a Slot (peers write it).
  ir::BufferId buffer(std::string suffix, ir::BufferKind kind, ir::DType dtype, int64_t rows,
                      int64_t cols, int64_t rotation = 1, bool packets = false);
  /// Makes a temporary for the op with `cols` elements a row. It has `rows` rows at launch, and at
  /// most `max_rows`.
  ir::BufferId rows_buffer(std::string suffix, ir::DType dtype, ir::Expr rows, int64_t max_rows,
                           int64_t cols);
  /// Makes an event by which tasks signal or wait across ranks; `wait` also orders packets
  /// (EventKind::Packet).
  ir::EventId event(std::string suffix, ir::EventKind kind);
  /// Declares what the op's calls deliver together, from its first operand to its first result; the
  /// verifier proves it.
  void promise(ir::CollectiveKind kind, ir::Reduction reduce = ir::Reduction::Sum,
               int64_t peer = 0);
  /// Declares what the op, a recv, gets on the ranks that take part, and on others.
  void promise_message(const Message& message);
  void promise_zeros(uint64_t ranks);
  void signal(ir::TaskId task, ir::EventId event, ir::RankRef to);
  void wait(ir::TaskId task, ir::EventId event, ir::RankRef from, uint32_t lag = 0);

  /// Reports why the op can't be compiled.
  void error(std::string message);
  void error_at(ir::Loc loc, std::string message);

 private:
  const ir::Graph& graph_;
  ir::OpId op_;
  ir::Program& program_;
  const cost::Machine& machine_;
  const std::vector<ir::BufferId>& buffer_of_tensor_;
  ir::Diagnostics& diagnostics_;
  std::shared_ptr<Messages> messages_;
  size_t before_;  // tasks of other ops
  size_t announced_ = 0;
  bool only_count_ = false;
};

}  // namespace maco::ops
