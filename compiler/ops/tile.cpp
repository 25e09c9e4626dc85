#include "compiler/ops/tile.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/function.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/push.h"
#include "ir/check.h"

namespace maco::ops {

using ir::Expr;

ir::Region box(const Mat& m, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  ir::Region r;
  r.buffer = m.buffer;
  r.pitch = m.cols;
  r.r0 = std::clamp<int64_t>(r0, 0, m.max_rows);
  r.r1 = std::clamp<int64_t>(r1, 0, m.max_rows);
  r.c0 = std::clamp<int64_t>(c0, 0, m.cols);
  r.c1 = std::clamp<int64_t>(c1, 0, m.cols);
  return r;
}

ir::Region whole(const Mat& m) { return box(m, 0, m.max_rows, 0, m.cols); }

ir::Region flat(const Mat& m, int64_t begin, int64_t end) {
  const int64_t n = m.max_elements();
  ir::Region r;
  r.buffer = m.buffer;
  r.pitch = n;
  r.r1 = 1;
  r.c0 = std::clamp<int64_t>(begin, 0, n);
  r.c1 = std::clamp<int64_t>(end, 0, n);
  return r;
}

Cut cut_of(const ir::Op& op) {
  Cut cut{attr_word(op, "method", ""), {}};
  if (const auto it = op.attrs.find("tile"); it != op.attrs.end())
    for (const Expr& e : std::get<std::vector<Expr>>(it->second.value)) {
      MACO_CHECK(e.constant(), op.name);
      cut.tile.push_back(*e.constant());
    }
  return cut;
}
void set_cut(ir::Op& op, const Cut& cut) {
  if (!cut.method.empty()) op.attrs["method"] = {cut.method, op.loc};
  if (cut.tile.empty()) return;
  std::vector<Expr> extents;
  for (int64_t n : cut.tile) extents.emplace_back(n);
  op.attrs["tile"] = {std::move(extents), op.loc};
}

ir::Access read(ir::Region r) { return {ir::AccessKind::Read, r}; }
ir::Access write(ir::Region r) { return {ir::AccessKind::Write, r}; }
ir::Access may_write(ir::Region r) { return {ir::AccessKind::MayWrite, r}; }

TileContext::TileContext(const ir::Graph& graph, ir::OpId op, ir::Program& program,
                         const cost::Machine& machine,
                         const std::vector<ir::BufferId>& buffer_of_tensor,
                         ir::Diagnostics& diagnostics, std::shared_ptr<Messages> messages)
    : graph_(graph),
      op_(op),
      program_(program),
      machine_(machine),
      buffer_of_tensor_(buffer_of_tensor),
      diagnostics_(diagnostics),
      messages_(std::move(messages)),
      before_(program.tasks.size()) {}

TileContext TileContext::beside(ir::OpId op) {
  messages();
  return {graph_, op, program_, machine_, buffer_of_tensor_, diagnostics_, messages_};
}

Messages& TileContext::messages() {
  if (!messages_) {
    ir::Diagnostics unheard;  // errors were reported when the graph was built
    messages_ = std::make_shared<Messages>(Messages::match(graph_, unheard));
  }
  return *messages_;
}

Mat TileContext::mat(ir::TensorId tensor) const {
  const ir::Tensor& t = graph_[tensor];
  Mat m;
  m.buffer = buffer_of_tensor_[index(tensor)];
  const ir::Buffer& b = program_[m.buffer];
  m.dtype = t.dtype;
  m.rows = b.rows;
  m.max_rows = b.max_rows;
  m.cols = b.cols;
  m.min_rows = range(b.rows).lo;
  m.is_param = t.kind == ir::TensorKind::Param;
  return m;
}

bool TileContext::has(const std::string& attr) const { return op().attrs.count(attr) > 0; }
int64_t TileContext::integer(const std::string& attr, int64_t default_value) const {
  auto e = expr(attr);
  if (!e) return default_value;
  MACO_CHECK(e->constant(), attr);
  return *e->constant();
}
double TileContext::number(const std::string& attr, double d) const {
  return attr_number(op(), attr, d);
}
bool TileContext::flag(const std::string& attr, bool d) const { return attr_flag(op(), attr, d); }
std::string TileContext::word(const std::string& attr, const std::string& d) const {
  return attr_word(op(), attr, d);
}
std::optional<Expr> TileContext::expr(const std::string& attr) const {
  return attr_expr(graph_, op(), attr);
}
std::vector<Expr> TileContext::list(const std::string& attr) const {
  return attr_list(graph_, op(), attr);
}

Cut TileContext::cut() const {
  Cut cut = cut_of(op());
  const OpDef& def = *find_op(op().kind);
  const bool open = cut.tile.empty() || (cut.method.empty() && !def.methods.empty());
  if (open && has_choice(graph(), op())) {
    const Cut chosen = def.choose(*this);
    if (cut.tile.empty()) cut.tile = chosen.tile;
    if (cut.method.empty()) cut.method = chosen.method;
  }
  return cut;
}

bool TileContext::check_cut() {
  const Cut given = cut_of(op());
  if (given == Cut{}) return true;
  const OpDef& def = *find_op(op().kind);
  const auto refuse = [&](const std::string& why) {
    const auto attr = op().attrs.find("tile");
    diagnostics_.error(attr == op().attrs.end() ? op().loc : attr->second.loc,
                       fmt::format("'{}' can't be cut so: {}", op().kind, why));
    return false;
  };
  if (!has_choice(graph(), op())) return refuse("its algorithm has one way only");
  const size_t most = def.tile_axes.size(), least = most - def.spare_axes;
  if (const size_t n = given.tile.size(); n != 0 && (n < least || n > most)) {
    const auto needed = def.tile_axes.begin() + static_cast<std::ptrdiff_t>(least);
    std::string spare;
    for (auto it = needed; it != def.tile_axes.end(); ++it) spare += fmt::format(", maybe {}", *it);
    return refuse(fmt::format("'tile' lists {}{}, not {} numbers",
                              fmt::join(def.tile_axes.begin(), needed, " and "), spare, n));
  }
  for (size_t i = 0; i < given.tile.size(); ++i)
    if (given.tile[i] < 1 || given.tile[i] > kMostExtent)
      return refuse(fmt::format("{} {} of a tile", given.tile[i], def.tile_axes[i]));
  const std::string why = def.refuse_cut ? def.refuse_cut(*this, cut()) : "";
  return why.empty() || refuse(why);
}

bool in_order(const ir::Graph& graph) {
  const auto differ = [](const ir::Op& a, const ir::Op& b) { return a.priority != b.priority; };
  return std::adjacent_find(graph.ops.begin(), graph.ops.end(), differ) == graph.ops.end();
}

namespace {

// For each SM, whether it runs ops of this kind.
std::vector<bool> sms_of(const ir::Program& program, std::string_view kind) {
  std::vector<bool> runs(static_cast<size_t>(program.ctas), false);
  for (const ir::CtaRange& range : program.roles)
    if (range.role == ir::Role::Compute &&
        (range.ops.empty() ||
         std::find(range.ops.begin(), range.ops.end(), kind) != range.ops.end()))
      std::fill(runs.begin() + range.begin, runs.begin() + range.end, true);
  return runs;
}

}  // namespace

bool may_mate(const ir::Graph& graph, const ir::Program& program, std::string_view kind) {
  if (program.ctas % 2 != 0 || !in_order(graph)) return false;
  const std::vector<bool> runs = sms_of(program, kind);
  for (size_t sm = 0; sm < runs.size(); sm += 2)
    if (runs[sm] && runs[sm + 1]) return true;
  return false;
}

bool TileContext::may_mate(std::string_view kind) const {
  return ops::may_mate(graph_, program_, kind);
}

bool TileContext::may_follow(std::string_view kind) const {
  return in_order(graph_) && sms_of(program_, kind) == sms_of(program_, op().kind);
}

ir::Interval TileContext::range(const Expr& e) const {
  auto r = ir::bounds(e, [this](std::string_view n) { return graph_.range_of(n); });
  MACO_CHECK(r, e.str());
  return *r;
}

int64_t TileContext::typical(const Expr& e) const {
  return ir::typical_value(
      e, [this](std::string_view n) { return graph_.typical_of(n); }, range(e));
}

ir::Param TileContext::value(std::string name, const Expr& e) {
  const Expr c =
      ir::canonical(ir::substitute(e, [this](std::string_view n) -> std::optional<int64_t> {
        if (n == "world") return graph_.world;
        return std::nullopt;
      }));
  if (auto v = c.constant()) return {std::move(name), ir::ValueRef{*v}};
  if (const ir::Interval only = range(c); only.lo == only.hi)
    return {std::move(name), ir::ValueRef{only.lo}};
  for (size_t i = 0; i < program_.values.size(); ++i)
    if (program_.values[i].expr == c)
      return {std::move(name), ir::ValueRef{static_cast<uint32_t>(i)}};
  program_.values.push_back({c, range(c)});
  return {std::move(name), ir::ValueRef{static_cast<uint32_t>(program_.values.size() - 1)}};
}

ir::CallId TileContext::call_with(std::string function, std::vector<std::string> stages,
                                  std::vector<ir::Param> params, std::vector<ir::BufferId> operands,
                                  std::vector<ir::Load> loads) {
  ir::Call c;
  c.op = op().name;
  c.op_kind = op().kind;
  c.function = std::move(function);
  c.stages = std::move(stages);
  c.params = std::move(params);
  c.operands = std::move(operands);
  c.loads = std::move(loads);
  c.loc = op().loc;
  const std::vector<std::string> wrong = functions::check(program_, c);
  MACO_CHECK(wrong.empty(), fmt::format("'{}': {}", c.op, fmt::join(wrong, "; ")));
  program_.calls.push_back(std::move(c));
  return ir::id_of<ir::CallId>(program_.calls.size() - 1);
}

void TileContext::room_for(int64_t tasks) const {
  const size_t left = kMostTasks - before_ - announced_;
  if (static_cast<size_t>(tasks) > left) throw TooManyTasks{};
}
void TileContext::announce(int64_t tasks) {
  room_for(tasks);
  announced_ += static_cast<size_t>(tasks);
}
void TileContext::announce_all(int64_t tasks) {
  announce(tasks);
  if (only_count_) throw Counted{};
}
void TileContext::only_count(size_t before) {
  before_ = before;
  only_count_ = true;
}

ir::TaskId TileContext::task(ir::CallId call, uint32_t tile, std::vector<ir::Access> accesses,
                             ir::Role role, uint64_t ranks) {
  if (program_.tasks.size() == kMostTasks) throw TooManyTasks{};
  ir::Task t;
  t.call = call;
  t.tile = tile;
  t.role = role;
  t.ranks = ranks;
  t.priority = op().priority;
  t.accesses = std::move(accesses);
  program_.tasks.push_back(std::move(t));
  return ir::id_of<ir::TaskId>(program_.tasks.size() - 1);
}

ir::BufferId TileContext::buffer(std::string suffix, ir::BufferKind kind, ir::DType dtype,
                                 int64_t rows, int64_t cols, int64_t rotation, bool packets) {
  ir::Buffer b;
  b.name = fmt::format("{}.{}", op().name, suffix);
  b.kind = kind;
  b.dtype = dtype;
  b.rows = Expr(rows);
  b.max_rows = rows;
  b.cols = cols;
  b.rotation = rotation;
  b.packets = packets;
  program_.buffers.push_back(std::move(b));
  return ir::id_of<ir::BufferId>(program_.buffers.size() - 1);
}

ir::BufferId TileContext::rows_buffer(std::string suffix, ir::DType dtype, Expr rows,
                                      int64_t max_rows, int64_t cols) {
  const ir::BufferId id = buffer(std::move(suffix), ir::BufferKind::Temp, dtype, max_rows, cols);
  program_[id].rows = std::move(rows);
  return id;
}

ir::EventId TileContext::event(std::string suffix, ir::EventKind kind) {
  program_.events.push_back({fmt::format("{}.{}", op().name, suffix), kind, 1});
  return ir::id_of<ir::EventId>(program_.events.size() - 1);
}
void TileContext::promise(ir::CollectiveKind kind, ir::Reduction reduce, int64_t peer) {
  ir::Collective c{.op = op().name, .kind = kind, .reduce = reduce, .peer = peer};
  if (kind != ir::CollectiveKind::Barrier) c.in = in(0).buffer, c.out = out(0).buffer;
  if (moves_as_made(op())) c.sender = graph_[*product_of(graph_, op())].name;
  program_.collectives.push_back(std::move(c));
}
void TileContext::promise_message(const Message& m) {
  program_.collectives.push_back({.op = op().name,
                                  .kind = ir::CollectiveKind::Message,
                                  .in = mat(graph_[m.send].in[0]).buffer,
                                  .out = out(0).buffer,
                                  .peer = m.shift,
                                  .sender = graph_[m.send].name,
                                  .ranks = m.receivers});
}
void TileContext::promise_zeros(uint64_t ranks) {
  program_.collectives.push_back({.op = op().name,
                                  .kind = ir::CollectiveKind::Zeros,
                                  .in = out(0).buffer,
                                  .out = out(0).buffer,
                                  .ranks = ranks});
}
void TileContext::signal(ir::TaskId task, ir::EventId event, ir::RankRef to) {
  program_[task].signals.push_back({event, to});
}
void TileContext::wait(ir::TaskId task, ir::EventId event, ir::RankRef from, uint32_t lag) {
  program_[task].waits.push_back({event, from, lag});
}

void TileContext::error_at(ir::Loc loc, std::string message) {
  diagnostics_.error(loc.known() ? loc : op().loc, std::move(message));
}
void TileContext::error(std::string message) { diagnostics_.error(op().loc, std::move(message)); }

}  // namespace maco::ops
