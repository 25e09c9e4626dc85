// The shape rule of matmul: which operands a matmul has, and whether they fit.
#include "compiler/ops/matmul_forms.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/rowwise.h"
#include "ir/body.h"

namespace maco::ops {

using ir::DType;

namespace {

// How many of the epilogue's operands are inputs of the op.
int epilogue_operands(const ir::Body& body, bool paired) {
  return std::max(0, body.operands() - (paired ? 2 : 1));
}

std::string quoted(const InferContext& c, int i) {
  return c.graph()[c.op().in[static_cast<size_t>(i)]].name;
}

// Accepts f32, f16, bf16 and f8 in any mix, or i32 with i32.
bool check_types(InferContext& c, const MatmulInputs& inputs) {
  const DType a = c.in(0).dtype, b = c.in(1).dtype;
  const bool integers = a == DType::I32 && b == DType::I32;
  if (!integers && !(ir::is_float(a) && ir::is_float(b))) {
    const int wrong = ir::is_float(a) || (a == DType::I32 && b != DType::I32) ? 1 : 0;
    c.error_in(wrong,
               fmt::format("'matmul' takes floats of any types, or i32 with i32, not {} with {}",
                           ir::name(a), ir::name(b)));
    c.note_in(wrong);
    return false;
  }
  if (const int at = inputs.bias_at; inputs.bias && !same_class(c.in(at).dtype, a)) {
    c.error_in(
        at, fmt::format("'matmul' in {} can't add the bias '{}' in {}", integers ? "i32" : "floats",
                        quoted(c, at), ir::name(c.in(at).dtype)));
    c.note_in(at);
  }
  const std::string activation = c.word("activation", "none");
  if (integers && (activation == "silu" || activation == "gelu"))
    c.error_attr("activation", fmt::format("'{}' is not defined for i32", activation));
  return true;
}

// Checks that the epilogue can be parsed and that inputs have their places. Passes write them, but
// people edit their texts.
bool has_places(InferContext& c) {
  const std::string text = c.word("epilogue", "");
  std::string error;
  if (!text.empty() && !ir::parse_body(text, error)) {
    c.error_attr("epilogue", "'epilogue': " + error);
    return false;
  }
  const MatmulInputs inputs = matmul_inputs(c.op());
  const int own = inputs.epilogue_first - inputs.bias_at;
  if (own == 0 || own == 1) return true;
  if (text.empty())
    c.error(fmt::format("'matmul' has {} inputs, of which {} or {} are its own", c.inputs(),
                        inputs.bias_at, inputs.bias_at + 1));
  else
    c.error_attr("epilogue",
                 fmt::format("'epilogue' has {} operands behind the product, but the op has {} "
                             "inputs",
                             c.inputs() - inputs.epilogue_first, c.inputs()));
  return false;
}

// Caches must be states with room for all rows, wherever these begin.
void check_appended(InferContext& c, int64_t N, const ir::Expr& rows) {
  const ir::Op& op = c.op();
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  const ir::Expr at = c.expr("append_at").value_or(ir::Expr(0));
  const auto first = ir::bounds(ir::canonical(at), range), count = ir::bounds(rows, range);
  constexpr size_t kMost = 2;  // caches
  if (op.out.size() < 2 || op.out.size() > 1 + kMost || !first || !count || first->lo < 0)
    return c.error_attr("append_at", "'matmul' appends to one state or two, from a row on");
  for (size_t i = 1; i < op.out.size(); ++i) {
    const ir::Tensor& cache = c.graph()[op.out[i]];
    const auto room = cache.shape.size() == 2 ? cache.shape[0].constant() : std::nullopt;
    if (cache.kind != ir::TensorKind::State || cache.dtype != c.out_dtype(0, c.in(0).dtype) ||
        !room || *room < first->hi + count->hi)
      return c.error_attr("append_at",
                          fmt::format("'matmul' can't append rows to '{}'", cache.name));
  }
  const std::vector<MatmulAppended> list = matmul_appended(c.graph(), op);
  const int64_t vector = functions::matmul_appended_vector(c.out_dtype(0, c.in(0).dtype));
  if (list.front().begin < 0 || list.back().end != N)
    c.error_attr("first_appended", "'matmul' appends its last columns, as many as the states have");
  else if (std::any_of(list.begin(), list.end(), [&](const MatmulAppended& a) {
             return a.begin % vector != 0 || a.end % vector != 0;
           }))
    c.error_attr("first_appended", fmt::format("'matmul' appends multiples of {} columns", vector));
}

// Checks what passes make of matmuls.
bool check_form(InferContext& c, const MatmulInputs& inputs) {
  const functions::MatmulForm form = inputs.form;
  if (form.paired &&
      (!c.flag("transpose_b", false) || !c.has("epilogue") || inputs.bias || c.has("activation") ||
       c.in(2).dtype != c.in(1).dtype || c.in(2).shape != c.in(1).shape)) {
    c.error(
        "a pair of products in 'matmul' needs transpose_b, second operands of one type and shape, "
        "and an epilogue, without bias and activation");
  } else if (form.normed &&
             (!ir::is_float(c.in(inputs.norm).dtype) || !ir::is_float(c.in(0).dtype) ||
              c.in(inputs.norm).shape != ir::Shape{c.in(0).shape.back()})) {
    c.error_in(inputs.norm, "'matmul' needs weights of its norm for each element of a row");
  } else if (form.turned) {
    const int64_t d = c.integer("head_dim", 0), count = c.integer("turned", 0),
                  first = c.integer("first_turned", 0);
    const bool matrices = c.in(0).shape.size() == 2 && c.in(1).shape.size() == 2;
    const auto n =
        matrices ? c.in(1).shape[c.flag("transpose_b", false) ? 0 : 1].constant() : std::nullopt;
    if (form.paired || form.normed || inputs.bias || c.has("activation") || c.has("epilogue"))
      c.error("'matmul' turns heads of plain products");
    else if (!matrices)
      c.error("'matmul' turns heads of products of two matrices");
    else if (d < 2 || first < 0 || count < 1 || !n || first > *n - count || first % d != 0 ||
             count % d != 0)
      c.error_attr("turned", fmt::format("'matmul' turns whole heads of its result, not {} columns "
                                         "from {} on, of heads of {}",
                                         count, first, d));
    else if (c.in(inputs.sines).dtype != DType::F32 ||
             c.in(inputs.sines).shape != ir::Shape{c.in(0).shape[0], ir::Expr(d)})
      c.error_in(inputs.sines, fmt::format("'matmul' needs sines and cosines of each row, f32[{}, "
                                           "{}]",
                                           c.in(0).shape[0].str(), d));
  }
  if (form.appended && (form.paired || form.normed || inputs.bias || c.has("activation") ||
                        c.has("epilogue") || c.in(0).shape.size() != 2))
    c.error("'matmul' appends only plain products, and products that turn heads, to states");
  return !c.failed();
}

void check_epilogue(InferContext& c, const MatmulInputs& inputs, const ir::Shape& shape) {
  const auto body = epilogue_of(c.op());
  if (!body) return;
  std::vector<DType> types(inputs.form.paired ? 2 : 1,
                           ir::is_float(c.in(0).dtype) ? DType::F32 : DType::I32);
  for (int i = inputs.epilogue_first; i < c.inputs(); ++i) {
    types.push_back(c.in(i).dtype);
    if (!spread_of(shape, c.in(i).shape))
      c.error_in(i, fmt::format("'epilogue' can't spread {} over {}", to_string(c.in(i).shape),
                                to_string(shape)));
  }
  if (const std::string why = ir::check_body(*body, types); !why.empty())
    c.error_attr("epilogue", "'epilogue': " + why);
  if (const DType out = c.out_dtype(0, c.in(0).dtype); body->dtype() != out)
    c.error_attr("epilogue", fmt::format("'epilogue' gives {}, but the op {}",
                                         ir::name(body->dtype()), ir::name(out)));
}

}  // namespace

MatmulInputs matmul_inputs(const ir::Op& op) {
  const auto body = epilogue_of(op);
  MatmulInputs r;
  r.form = {.paired = attr_flag(op, "paired", false),
            .normed = op.attrs.count("norm_eps") > 0,
            .turned = op.attrs.count("turned") > 0,
            .appended = op.attrs.count("append_at") > 0};
  r.norm = r.form.paired ? 3 : 2;
  r.sines = r.norm + (r.form.normed ? 1 : 0);
  r.bias_at = r.sines + (r.form.turned ? 1 : 0);
  r.epilogue_first =
      static_cast<int>(op.in.size()) - (body ? epilogue_operands(*body, r.form.paired) : 0);
  r.bias = r.epilogue_first > r.bias_at;
  return r;
}

std::vector<MatmulAppended> matmul_appended(const ir::Graph& graph, const ir::Op& op) {
  std::vector<MatmulAppended> list;
  int64_t at = attr_expr(graph, op, "first_appended").value_or(ir::Expr(0)).constant().value_or(0);
  for (size_t i = 1; i < op.out.size(); ++i) {
    const int64_t columns = graph[op.out[i]].shape.back().constant().value_or(0);
    list.push_back({static_cast<int>(i), at, at + columns});
    at += columns;
  }
  return list;
}

void infer_matmul(InferContext& c) {
  if (!has_places(c)) return;
  const MatmulInputs inputs = matmul_inputs(c.op());
  if (!check_form(c, inputs) || !check_types(c, inputs) || !expect_constant_row(c, 0)) return;
  const Type a = c.in(0), b = c.in(1);
  if (b.shape.size() != 2) {
    c.error_in(1, fmt::format("'matmul' needs a matrix of 2 axes on the right, but {} has {}",
                              describe(c.graph(), c.op().in[1]), b.shape.size()));
    c.note_in(1);
    return;
  }
  if (!b.shape[0].is_constant()) {
    c.error_in(1, fmt::format("'matmul' needs constant extents on the right, but has {}",
                              describe(c.graph(), c.op().in[1])));
    c.note_in(1);
    return;
  }
  const bool transpose = c.flag("transpose_b", false);
  const ir::Expr k = a.shape.back(), b_k = b.shape[transpose ? 1 : 0],
                 n = b.shape[transpose ? 0 : 1];
  if (k != b_k) {
    const bool other_way = b.shape[transpose ? 0 : 1] == k;
    c.error(fmt::format(
        "'matmul' cannot multiply a{} by b{}{}: the inner sizes differ ({} and {}){}",
        to_string(a.shape), to_string(b.shape), transpose ? " transposed" : "", k.str(), b_k.str(),
        !other_way  ? ""
        : transpose ? "; without 'transpose_b' they agree"
                    : "; with 'transpose_b' they agree"));
    c.note_in(1);
    return;
  }
  if (const int at = inputs.bias_at; inputs.bias && c.in(at).shape != ir::Shape{n}) {
    c.error_in(at, fmt::format("'matmul' with {} columns needs a bias of shape [{}], but {} has {}",
                               n.str(), n.str(), quoted(c, at), to_string(c.in(at).shape)));
    c.note_in(at);
  }
  ir::Shape shape = a.shape;
  shape.back() = n;
  check_epilogue(c, inputs, shape);
  if (inputs.form.appended) check_appended(c, *n.constant(), shape[0]);
  c.set_out(0, c.out_dtype(0, a.dtype), shape);
  if (c.failed()) return;
  for (int i = 1; i < c.outputs(); ++i) {
    const ir::Tensor& cache = c.graph()[c.op().out[static_cast<size_t>(i)]];
    c.set_out(i, cache.dtype, cache.shape);
  }
}

}  // namespace maco::ops
