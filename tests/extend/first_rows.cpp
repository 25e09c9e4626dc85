// first_rows: an op whose work only a launch decides. Behind the first `count` rows, none or all of
// them, its result is zeros, and its tasks read nothing.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/function.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "runtime/reference/op.h"
#include "tests/extend/extension.h"

namespace maco::extend {

namespace {

constexpr int64_t kTileElements = 1024;

constexpr const char* kSource =
    R"(// first_rows: BR rows of cols elements, those below count as they are.
namespace maco::ops {
template <class C>
MACO_OP void first_rows(Context& ctx, const Args& args, u32 tile) {
  using X = typename C::X;
  const i64 row = i64(tile) * C::BR, rows = least(C::BR, C::rows::get(ctx) - row);
  const i64 kept = most(0, least(rows, C::count::get(ctx) - row));
  const X* x = args.template ptr<X>(0) + row * C::cols;
  X* y = args.template ptr<X>(1) + row * C::cols;
  for (i64 i = consumer_thread(); i < rows * C::cols; i += kConsumers)
    gstore(y + i, i < kept * C::cols ? gload(x + i) : from_acc<X>(AccOf<X>(0)));
}
}  // namespace maco::ops
)";

void infer(ops::InferContext& c) {
  const ops::Type x = c.in(0);
  const ir::Expr count = c.expr("count").value_or(ir::Expr(0));
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  const auto kept = ir::bounds(ir::canonical(count), range),
             left = ir::bounds(ir::canonical(x.shape[0] - count), range);
  if (x.shape.size() != 2)
    c.error("'first_rows' takes a matrix");
  else if (!kept || !left || kept->lo < 0 || left->lo < 0)
    c.error_attr("count", fmt::format("'first_rows' keeps 0 to {} rows, not '{}'", x.shape[0].str(),
                                      count.str()));
  c.set_out(0, x.dtype, x.shape);
}

void tile(ops::TileContext& c) {
  const ops::Mat x = c.in(0), y = c.out(0);
  const int64_t br = std::clamp<int64_t>(kTileElements / x.cols, 1, x.max_rows);
  const ir::CallId call = c.call("first_rows",
                                 {{"X", x.dtype},
                                  c.value("rows", x.rows),
                                  c.value("count", *c.expr("count")),
                                  {"cols", x.cols},
                                  {"BR", br}},
                                 {x.buffer, y.buffer});
  c.announce_all((x.max_rows + br - 1) / br);
  uint32_t index = 0;
  for (int64_t r = 0; r < x.max_rows; r += br)
    c.task(call, index++,
           {ops::read(ops::box(x, r, r + br, 0, x.cols)),
            ops::write(ops::box(y, r, r + br, 0, y.cols))});
}

functions::Touches touches(const ir::Program& program, const ir::Call& call) {
  const functions::CallView c(program, call);
  const int64_t br = c.integer("BR"), cols = c.integer("cols"), rows = c.range("rows").hi;
  return {.touches = [=, &call](const ir::Task& task) {
    ir::Region part;
    part.pitch = part.c1 = cols;
    part.r0 = task.tile * br;
    part.r1 = std::min(part.r0 + br, rows);
    ir::Region x = part, y = part;
    x.buffer = call.operands[0];
    y.buffer = call.operands[1];
    return task.accesses == std::vector<ir::Access>{ops::read(x), ops::write(y)};
  }};
}

// Of the launch for which costs are computed: reads are of the rows that are kept, writes of all.
cost::Work work(const functions::CallView& c, const ir::Task& task, const cost::Machine&) {
  const int64_t row = task.tile * c.integer("BR");
  const auto of = [&](const char* value) {
    return std::clamp<int64_t>(c.typical(value) - row, 0, c.integer("BR"));
  };
  const int64_t elements = (of("count") + of("rows")) * c.integer("cols");
  return {.bytes = static_cast<double>(elements * ir::size_of(c.dtype("X"))),
          .fixed_microseconds = 0.5};
}

void meaning(reference::Call& call) {
  const int64_t kept = call.integer("count", 0) * call.in[0]->shape.back();
  for (int64_t i = 0; i < kept; ++i) call.out[0].set(i, call.in[0]->at(i));
}

}  // namespace

std::string register_first_rows() {
  using functions::ParamType;
  ops::OpDef op;
  op.kind = "first_rows";
  op.summary = "the first rows of x, and zeros";
  op.attrs = {{"count", ops::AttrType::RuntimeInt, true, "", {}, false}};
  op.infer = infer;
  op.tile = tile;
  // Its rows are those of a launch, not those of a microbatch.
  op.refuse_stage = [](const ir::Graph&, const ir::Op&, const std::vector<bool>&) {
    return std::string("'count' counts the rows of all microbatches");
  };
  reference::OpEntry entry;
  entry.kind = "first_rows";
  entry.eval = meaning;
  if (std::string why = functions::register_function(
          {.name = "first_rows",
           .params = {{"X", ParamType::DType},
                      {"rows", ParamType::Value},
                      {"count", ParamType::Value},
                      {"cols", ParamType::Int},
                      {"BR", ParamType::Int}},
           .operands = {{"x", functions::Access::Read, functions::Count::One, "X"},
                        {"y", functions::Access::Write, functions::Count::One, "X"}},
           .source = {{}, kSource},
           .touches = touches,
           .work = work});
      !why.empty())
    return why;
  if (std::string why = ops::register_op(op); !why.empty()) return why;
  return reference::register_op(entry);
}

}  // namespace maco::extend
