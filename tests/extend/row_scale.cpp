// scale_rows: an op that multiplies each row by a number, and a stage of matmul that does so before
// the product: how ops with it are fused, what tasks read for it, its device code.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/function.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/fuse/fold.h"
#include "compiler/passes/fuse/rules.h"
#include "runtime/reference/op.h"
#include "tests/extend/extension.h"

namespace maco::extend {

namespace {

constexpr const char* kOpSource = R"(// scale_rows: a row.
namespace maco::ops {
template <class C>
MACO_OP void scale_rows(Context& ctx, const Args& args, u32 tile) {
  using X = typename C::X;
  if (tile >= C::rows::get(ctx)) return;
  const X* x = args.template ptr<X>(0) + i64(tile) * C::cols;
  const float scale = gload(args.template ptr<float>(1) + tile);
  X* y = args.template ptr<X>(2) + i64(tile) * C::cols;
  for (i64 i = consumer_thread(); i < C::cols; i += kConsumers)
    gstore(y + i, from_acc<X>(fmul(to_acc(gload(x + i)), scale)));
}
}  // namespace maco::ops
)";

constexpr const char* kStageSource = R"(// matmul of rows that are multiplied by a number each.
namespace maco::ops {
template <class C>
struct ScaleRows : ChangedRows<C, ScaleRows<C>> {
  using X = typename C::X;
  template <int V>
  static MACO_FN Vec<X, V> change(const Args& args, const MatmulTile<C>& t, const float*, i64 r,
                                  i64, const Vec<X, V>& x) {
    const float scale = gload(args.template ptr<float>(C::scale_at) + t.row + r);
    Vec<X, V> y;
    MACO_UNROLL
    for (int i = 0; i < V; ++i) y.v[i] = from_acc<X>(fmul(to_acc(x.v[i]), scale));
    return y;
  }
};
}  // namespace maco::ops
)";

void infer(ops::InferContext& c) {
  const ops::Type x = c.in(0), scale = c.in(1);
  if (x.shape.size() != 2 || !ir::is_float(x.dtype) || scale.dtype != ir::DType::F32 ||
      scale.shape != ir::Shape{x.shape[0], ir::Expr(1)})
    return c.error("'scale_rows' takes floats [rows, columns] and f32[rows, 1]");
  c.set_out(0, x.dtype, x.shape);
}

void tile(ops::TileContext& c) {
  const ops::Mat x = c.in(0), scale = c.in(1), y = c.out(0);
  const ir::CallId call =
      c.call("scale_rows", {{"X", x.dtype}, c.value("rows", x.rows), {"cols", x.cols}},
             {x.buffer, scale.buffer, y.buffer});
  for (int64_t r = 0; r < x.max_rows; ++r)
    c.task(call, static_cast<uint32_t>(r),
           {ops::read(ops::box(x, r, r + 1, 0, x.cols)), ops::read(ops::box(scale, r, r + 1, 0, 1)),
            ops::write(ops::box(y, r, r + 1, 0, y.cols))});
}

void meaning(reference::Call& call) {
  const int64_t cols = call.in[0]->shape.back();
  for (int64_t i = 0; i < call.out[0].elements(); ++i)
    call.out[0].set(i, call.in[0]->at(i) * call.in[1]->at(i / cols));
}

// Folds scale_rows into matmuls of few rows.
class Scales : public passes::Fold {
 public:
  Scales(ir::Graph& graph, passes::PassContext& context)
      : Fold(graph, context, "scale_rows", "matmuls") {}

 private:
  std::string refuse(const ir::Op& op) override {
    if (std::string why = passes::refuse_op(graph_, uses_, op); !why.empty()) return why;
    const ir::TensorId y = op.out[0];
    for (size_t r : readers(y)) {
      const ir::Op& m = graph_.ops[r];
      if (m.kind != "matmul" || std::count(m.in.begin(), m.in.end(), y) != 1 || m.in[0] != y)
        return "something else than a matmul reads it";
      if (!ops::is_of_few_rows(graph_, m, context_.machine))
        return "a matmul that reads it isn't one of few rows";
      if (!ops::may_have_stage(m, "scale")) return "a matmul that reads it does more with its rows";
    }
    return "";
  }
  void fold(const ir::Op& op) override {
    for (size_t r : readers(op.out[0])) {
      ir::Op& m = graph_.ops[r];
      m.in[0] = op.in[0];
      ops::add_stage_inputs(m, "scale", {op.in[1]}, op.loc);
      m.attrs["row_scale"] = {true, op.loc};
    }
  }
};

}  // namespace

std::string register_row_scale() {
  using functions::Access;
  using functions::ParamType;
  ops::OpDef op;
  op.kind = "scale_rows";
  op.summary = "each row times a number";
  op.min_in = op.max_in = 2;
  op.infer = infer;
  op.tile = tile;
  reference::OpEntry entry;
  entry.kind = "scale_rows";
  entry.eval = meaning;
  ops::MatmulStage stage;
  stage.name = "scale";
  stage.attrs = {{"row_scale", ops::AttrType::Bool, false, "false", {}, true}};
  stage.inputs = 1;
  stage.refuse_cut = [](const ops::TileContext&, const ops::Cut& cut) -> std::string {
    return cut.method == "dot" ? "" : "a product of scaled rows takes method 'dot'";
  };
  stage.reads = [](const ops::TileContext& c, const ops::MatmulPart& part, int first, int) {
    return ops::read(ops::box(c.in(first), part.r0, part.r1, 0, 1));
  };
  for (const std::string& why :
       {functions::register_function(
            {.name = "scale_rows",
             .params = {{"X", ParamType::DType},
                        {"rows", ParamType::Value},
                        {"cols", ParamType::Int}},
             .operands = {{"x", Access::Read}, {"scale", Access::Read}, {"y", Access::Write}},
             .source = {{}, kOpSource}}),
        ops::register_op(op), reference::register_op(entry),
        functions::register_stage(
            {.function = "matmul",
             .name = "scale",
             .inputs = {{"scale", Access::Read, functions::Count::One, "f32"}},
             .source = {{}, kStageSource},
             .fills = {{"Rows", "ops::ScaleRows"}},
             .beside = {"pair"}}),
        ops::register_matmul_stage(stage),
        passes::register_fuse_rule(
            {.name = "scale",
             .summary = "scale_rows into the matmuls of few rows that read it",
             .fold = [](ir::Graph& graph, passes::PassContext& context) {
               Scales(graph, context).run();
               return true;
             }})})
    if (!why.empty()) return why;
  return "";
}

}  // namespace maco::extend
