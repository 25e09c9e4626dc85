// softcap: its shape, its tiles, its device function, its meaning.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/functions/function.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "runtime/reference/op.h"
#include "tests/extend/extension.h"

namespace maco::extend {

namespace {

constexpr int64_t kTileElements = 4096;

constexpr const char* kSource = R"(// softcap: BR rows of cols elements.
namespace maco::ops {
template <class C>
MACO_OP void softcap(Context& ctx, const Args& args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  const i64 row = i64(tile) * C::BR, rows = least(C::BR, C::rows::get(ctx) - row);
  const X* x = args.template ptr<X>(0) + row * C::cols;
  Y* y = args.template ptr<Y>(1) + row * C::cols;
  constexpr float cap = float(C::cap);
  for (i64 i = consumer_thread(); i < rows * C::cols; i += kConsumers)
    gstore(y + i, from_acc<Y>(fmul(cap, fn::tanh(fdiv(to_acc(gload(x + i)), cap)))));
}
}  // namespace maco::ops
)";

void infer(ops::InferContext& c) {
  if (!ir::is_float(c.in(0).dtype))
    c.error_in(0, fmt::format("'softcap' takes floats, not {}", ir::name(c.in(0).dtype)));
  if (c.number("cap", 0) <= 0) c.error_attr("cap", "'cap' must be positive");
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), c.in(0).shape);
}

void tile(ops::TileContext& c) {
  const ops::Mat x = c.in(0), y = c.out(0);
  const int64_t br = std::clamp<int64_t>(kTileElements / x.cols, 1, x.max_rows);
  const ir::CallId call = c.call("softcap",
                                 {{"X", x.dtype},
                                  {"Y", y.dtype},
                                  c.value("rows", x.rows),
                                  {"cols", x.cols},
                                  {"BR", br},
                                  {"cap", c.number("cap", 0)}},
                                 {x.buffer, y.buffer});
  uint32_t index = 0;
  for (int64_t r = 0; r < x.max_rows; r += br)
    c.task(call, index++,
           {ops::read(ops::box(x, r, r + br, 0, x.cols)),
            ops::write(ops::box(y, r, r + br, 0, y.cols))});
}

// What a task touches, as the call's parameters say it.
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

void meaning(reference::Call& call) {
  const double cap = call.number("cap", 0);
  for (int64_t i = 0; i < call.out[0].elements(); ++i)
    call.out[0].set(i, cap * std::tanh(call.in[0]->at(i) / cap));
}

}  // namespace

std::string register_softcap() {
  using functions::ParamType;
  const functions::Function function{
      .name = "softcap",
      .params = {{"X", ParamType::DType},
                 {"Y", ParamType::DType},
                 {"rows", ParamType::Value},
                 {"cols", ParamType::Int},
                 {"BR", ParamType::Int},
                 {"cap", ParamType::Number}},
      .operands = {{"x", functions::Access::Read}, {"y", functions::Access::Write}},
      .source = {{"rows.cuh"}, kSource},
      .touches = touches};
  ops::OpDef op;
  op.kind = "softcap";
  op.summary = "cap tanh(x / cap)";
  op.attrs = {{"cap", ops::AttrType::Number, true, "", {}, false}};
  op.infer = infer;
  op.tile = tile;
  reference::OpEntry entry;
  entry.kind = "softcap";
  entry.eval = meaning;
  if (std::string why = functions::register_function(function); !why.empty()) return why;
  if (std::string why = ops::register_op(op); !why.empty()) return why;
  return reference::register_op(entry);
}

}  // namespace maco::extend
