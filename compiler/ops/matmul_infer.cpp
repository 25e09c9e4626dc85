// The shape rule of matmul: which operands a matmul has, and whether they fit.
#include "compiler/ops/matmul_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/function.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/rowwise.h"
#include "ir/body.h"

namespace maco::ops {

using ir::DType;

namespace {

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

// Checks what passes make of matmuls.
bool check_stages(InferContext& c, const MatmulInputs& inputs) {
  ir::Call call;
  call.function = "matmul";
  for (const StageUse& use : inputs.stages) call.stages.push_back(use.stage->name);
  if (const std::string why = functions::refuse_stages(call); !why.empty()) {
    c.error("this product " + why);
    return false;
  }
  for (const StageUse& use : inputs.stages) {
    if (use.stage->check) use.stage->check(c, inputs, use.first);
    if (c.failed()) return false;
  }
  return true;
}

void check_epilogue(InferContext& c, const MatmulInputs& inputs, const ir::Shape& shape) {
  const auto body = epilogue_of(c.op());
  if (!body) return;
  std::vector<DType> types(static_cast<size_t>(inputs.sums),
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

void infer_matmul(InferContext& c) {
  if (!has_places(c)) return;
  const MatmulInputs inputs = matmul_inputs(c.op());
  if (!check_stages(c, inputs) || !check_types(c, inputs) || !expect_constant_row(c, 0)) return;
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
  c.set_out(0, c.out_dtype(0, a.dtype), shape);
  if (c.failed()) return;
  for (int i = 1; i < c.outputs(); ++i) {
    const ir::Tensor& cache = c.graph()[c.op().out[static_cast<size_t>(i)]];
    c.set_out(i, cache.dtype, cache.shape);
  }
}

}  // namespace maco::ops
