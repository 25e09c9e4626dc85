// add sub mul div pow maximum minimum, comparisons, functions of one operand, clamp, swiglu, geglu,
// where, and `fused`, which passes make of chains of them. cast and copy (cast_copy.cpp) use the
// same rules.
//
// All of them are one device function, elementwise<C>, whose config carries the computation of an
// element (ir/body.h).
#include "compiler/ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/ops/attrs.h"
#include "compiler/ops/by_rows.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/elementwise_rules.h"
#include "compiler/ops/families.h"
#include "compiler/ops/tile_shape.h"
#include "ir/check.h"

namespace maco::ops {

using ir::Body;
using ir::BodyArg;
using ir::DType;
using ir::Spread;

namespace {

constexpr std::string_view kBinary[] = {"add", "sub", "mul", "div", "pow", "maximum", "minimum"};
constexpr std::string_view kComparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};
constexpr std::string_view kUnary[] = {"relu", "silu",  "gelu", "sigmoid", "tanh", "exp", "log",
                                       "sqrt", "rsqrt", "sin",  "cos",     "erf",  "neg", "abs"};
constexpr std::string_view kGated[] = {"swiglu", "geglu"};
const AttrSpec kValue = {"value", AttrType::Number, false, "", {}};
const AttrSpec kApproximate = {"approximate", AttrType::Word, false, "none", {"none", "tanh"}};

template <class List>
bool contains(const List& list, std::string_view kind) {
  return std::find(std::begin(list), std::end(list), kind) != std::end(list);
}

Body parsed_body(const ir::Op& op) {
  std::string error;
  auto body = ir::parse_body(attr_word(op, "body", ""), error);
  MACO_CHECK(body, error);
  return *body;
}

void infer_unary(InferContext& c) { infer_elementwise(c); }

// Infers an op whose last operand may be given as `value`.
void infer_binary(InferContext& c) {
  if ((c.inputs() == find_op(c.op().kind)->max_in) == c.has("value")) {
    c.error(fmt::format("'{}' takes a {} operand or 'value', and {}", c.op().kind,
                        c.op().kind == "where" ? "third" : "second",
                        c.has("value") ? "here are both" : "here is neither"));
    return;
  }
  infer_elementwise(c);
}

void infer_clamp(InferContext& c) {
  if (!c.has("min") && !c.has("max"))
    return c.error("'clamp' takes 'min', 'max' or both, and here is neither");
  infer_elementwise(c);
}

void infer_fused(InferContext& c) {
  std::string error;
  auto body = ir::parse_body(c.word("body", ""), error);
  if (!body) {
    c.error_attr("body", "'body': " + error);
  } else if (body->operands() != c.inputs()) {
    c.error_attr("body", fmt::format("'body' has {} operands, but the op has {} inputs",
                                     body->operands(), c.inputs()));
  } else {
    infer_elementwise(c);
  }
}

// A body of one step, whose function is the op's.
Body single_step(const ir::Op& op, DType dtype) {
  ir::BodyStep s;
  s.function = op.kind;
  if (attr_word(op, "approximate", "none") == "tanh") s.function += "_tanh";
  if (op.kind == "clamp" && op.attrs.count("min") + op.attrs.count("max") == 1)
    s.function = op.attrs.count("min") ? "maximum" : "minimum";
  for (size_t i = 0; i < op.in.size(); ++i) s.args.push_back(BodyArg::operand(static_cast<int>(i)));
  for (const char* number : {"value", "min", "max"})
    if (op.attrs.count(number)) s.args.push_back(BodyArg::value(attr_number(op, number, 0)));
  s.dtype = dtype;
  return {{s}};
}

// The dtype of a temporary that the op makes.
DType own_dtype(InferContext& c) {
  if (contains(kComparisons, c.op().kind)) return DType::U8;
  return c.in(c.op().kind == "where" ? 1 : 0).dtype;
}

// Whether operands are broadcast to the first one's shape.
bool broadcasts(std::string_view kind) { return !contains(kGated, kind) && kind != "where"; }

}  // namespace

bool is_elementwise(std::string_view kind) {
  return contains(kBinary, kind) || contains(kComparisons, kind) || contains(kUnary, kind) ||
         contains(kGated, kind) || kind == "clamp" || kind == "where" || kind == "cast" ||
         kind == "copy" || kind == "fused";
}

Body body_of(const ir::Graph& graph, const ir::Op& op) {
  return op.kind == "fused" ? parsed_body(op) : single_step(op, graph[op.out[0]].dtype);
}

void append_body(const ir::Graph& graph, const ir::Op& op, Body& body,
                 std::map<ir::TensorId, BodyArg>& known) {
  const int first = static_cast<int>(body.steps.size());
  for (ir::BodyStep s : body_of(graph, op).steps) {
    for (BodyArg& a : s.args) {
      if (a.kind == BodyArg::Kind::Operand)
        a = known.at(op.in[static_cast<size_t>(a.index)]);
      else if (a.kind == BodyArg::Kind::Step)
        a.index += first;
    }
    body.steps.push_back(std::move(s));
  }
  known[op.out[0]] = BodyArg::step(static_cast<int>(body.steps.size()) - 1);
}

std::optional<Spread> spread_of(const ir::Shape& out, const ir::Shape& operand) {
  if (operand == out) return Spread::Full;
  if (operand.size() != 1) return std::nullopt;
  const auto n = operand[0].constant();
  if (n == 1) return Spread::Single;
  return n && out.back().constant() == n ? std::optional(Spread::Column) : std::nullopt;
}

namespace {
// Whether a constant of the body's last step can have the value `number`.
bool fits(const Body& body, const std::vector<DType>& operands, double number) {
  if (ir::computes_in_float(body, body.steps.back(), operands)) return ir::fits_f32(number);
  return number == std::trunc(number) && std::abs(number + 0.5) <= 2147483647.5;
}
}  // namespace

void infer_elementwise(InferContext& c) {
  const std::string& kind = c.op().kind;
  const Type first = c.in(0);
  std::vector<DType> dtypes;
  for (int i = 0; i < c.inputs(); ++i) {
    const Type t = c.in(i);
    dtypes.push_back(t.dtype);
    const auto s = spread_of(first.shape, t.shape);
    if (s == Spread::Full || (s && broadcasts(kind))) continue;
    const std::string whole = to_string(first.shape);
    const auto n = first.shape.back().constant();
    const std::string expected = !broadcasts(kind) ? whole
                                 : n && first.shape.size() > 1 && *n > 1
                                     ? fmt::format("{}, [{}] or [1]", whole, *n)
                                     : fmt::format("{} or [1]", whole);
    c.error_in(
        i, fmt::format("'{}' cannot combine {} with {}: operand {} must be {}", kind,
                       describe(c.graph(), c.op().in[0]),
                       describe(c.graph(), c.op().in[static_cast<size_t>(i)]), i + 1, expected));
    c.note_in(i);
    return;
  }
  Body body =
      kind == "fused" ? parsed_body(c.op()) : single_step(c.op(), c.out_dtype(0, own_dtype(c)));
  if (kind == "clamp") {  // reported in its own name
    body.steps[0].function = kind;
    body.steps[0].args.resize(3, body.steps[0].args.back());
  }
  if (const std::string why = ir::check_body(body, dtypes); !why.empty()) {
    // A constant that doesn't fit is the fault of its attribute. Everything else is the fault of
    // the operands' types.
    for (const char* number : {"value", "min", "max"})
      if (why[0] != '\'' && c.has(number) && !fits(body, dtypes, c.number(number, 0)))
        return c.error_attr(number, fmt::format("'{}': {}", number, why));
    c.error(why);
    return;
  }
  c.set_out(0, body.dtype(), first.shape);
}

void tile_elementwise(TileContext& c) {
  const Mat out = c.out(0);
  const ir::Shape& shape = c.shape(c.op().out[0]);
  std::vector<Mat> in;
  ir::BodyParam body{body_of(c.graph(), c.op()), {}};
  for (int i = 0; i < static_cast<int>(c.op().in.size()); ++i) {
    in.push_back(c.in(i));
    const auto spread = spread_of(shape, c.shape(c.op().in[static_cast<size_t>(i)]));
    MACO_CHECK(spread, c.op().name);
    body.operands.push_back({*spread, in.back().dtype});
  }
  const TileShape t = block_of(c.cut());
  c.announce_all(body_tasks(out, t));
  tile_body(c, body, in, out, t);
}

int64_t body_tasks(const Mat& out, TileShape t) {
  return tiles_of(out.max_rows, t.bm) * tiles_of(out.cols, t.bn);
}

void tile_body(TileContext& c, const ir::BodyParam& body, const std::vector<Mat>& in,
               const Mat& out, TileShape t) {
  std::vector<DType> full = {out.dtype};  // of the operands that are read in vectors
  bool columns = false;
  for (const ir::BodyOperand& operand : body.operands) {
    if (operand.spread != Spread::Single) full.push_back(operand.dtype);
    columns = columns || operand.spread == Spread::Column;
  }
  // Whole rows are one run of elements, in vectors from where the tile begins. Otherwise each row
  // is a run.
  const bool runs = t.bn == out.cols && !columns;
  const int64_t begin = !runs ? out.cols : t.bm < out.max_rows ? t.bm * out.cols : 0;
  const int64_t V = vector_width(full, {begin});

  std::vector<ir::BufferId> buffers;
  for (const Mat& m : in) buffers.push_back(m.buffer);
  buffers.push_back(out.buffer);
  const ir::CallId call = c.call("elementwise",
                                 {{"Y", out.dtype},
                                  c.value("rows", out.rows),
                                  {"N", out.cols},
                                  {"BM", t.bm},
                                  {"BN", t.bn},
                                  {"V", V},
                                  {"runs", runs},
                                  {"body", body}},
                                 buffers);
  uint32_t tile = 0;
  for (int64_t r = 0; r < out.max_rows; r += t.bm) {
    for (int64_t n = 0; n < out.cols; n += t.bn) {
      std::vector<ir::Access> accesses;
      for (size_t i = 0; i < in.size(); ++i) {
        switch (body.operands[i].spread) {
          case Spread::Full: accesses.push_back(read(box(in[i], r, r + t.bm, n, n + t.bn))); break;
          case Spread::Column: accesses.push_back(read(box(in[i], 0, 1, n, n + t.bn))); break;
          default: accesses.push_back(read(whole(in[i])));
        }
      }
      accesses.push_back(write(box(out, r, r + t.bm, n, n + t.bn)));
      c.task(call, tile++, std::move(accesses));
    }
  }
}

namespace {
// If an operand is a sum whose tiles have come in packets, the cut is that sum's: each tile is at
// hand where it was summed.
Cut choose_elementwise(const TileContext& c) {
  for (const ir::TensorId in : c.op().in) {
    if (c.world() == 1 || c.shape(in) != c.shape(c.op().out[0])) continue;
    for (size_t i = index(c.id()); i-- > 0;) {
      const ir::Op& made = c.graph().ops[i];
      if (std::find(made.out.begin(), made.out.end(), in) == made.out.end()) continue;
      if (!moves_as_made(made) || made.kind != "allreduce") break;
      const Cut cut = TileContext(c).beside(ir::id_of<ir::OpId>(i)).cut();
      if (cut.method == "packets" && refuse_block(c, {.tile = cut.tile}).empty())
        return {.tile = cut.tile};
      break;
    }
  }
  return choose_block(c);
}
}  // namespace

void cut_elementwise(OpDef& def) {
  def.tile_axes = kBlockAxes;
  def.choose = choose_elementwise;
  def.refuse_cut = refuse_block;
  def.tile = tile_elementwise;
  def.refuse_stage = by_elements;
}

std::vector<OpDef> elementwise_ops() {
  std::vector<OpDef> ops;
  for (std::string_view kind : kBinary) {
    OpDef d;
    d.kind = kind;
    d.summary =
        "element by element; the second operand is broadcast from the last axis, or is the number "
        "'value'";
    d.max_in = 2;
    d.attrs = {kValue};
    d.infer = infer_binary;
    cut_elementwise(d);
    ops.push_back(d);
  }
  for (std::string_view kind : kComparisons) {
    OpDef d;
    d.kind = kind;
    d.summary = "1 where it holds of the two, else 0; the second operand is as that of add";
    d.max_in = 2;
    d.attrs = {kValue};
    d.infer = infer_binary;
    cut_elementwise(d);
    ops.push_back(d);
  }
  for (std::string_view kind : kUnary) {
    OpDef d;
    d.kind = kind;
    d.summary = "element by element";
    if (kind == "gelu") d.attrs = {kApproximate};
    d.infer = infer_unary;
    cut_elementwise(d);
    ops.push_back(d);
  }
  OpDef clamp;
  clamp.kind = "clamp";
  clamp.summary = "minimum(maximum(x, min), max)";
  clamp.attrs = {{"min", AttrType::Number, false, "", {}},
                 {"max", AttrType::Number, false, "", {}}};
  clamp.infer = infer_clamp;
  cut_elementwise(clamp);
  ops.push_back(clamp);
  for (std::string_view kind : kGated) {
    OpDef d;
    d.kind = kind;
    d.summary = fmt::format("{}(first) * second", kind == "swiglu" ? "silu" : "gelu");
    d.min_in = d.max_in = 2;
    if (kind == "geglu") d.attrs = {kApproximate};
    d.infer = infer_elementwise;
    cut_elementwise(d);
    ops.push_back(d);
  }
  OpDef where;
  where.kind = "where";
  where.summary = "the second where the first, a u8, isn't 0, else the third or the number 'value'";
  where.min_in = 2;
  where.max_in = 3;
  where.attrs = {kValue};
  where.infer = infer_binary;
  cut_elementwise(where);
  ops.push_back(where);
  OpDef fused;
  fused.kind = "fused";
  fused.summary = "several elementwise ops in one";
  fused.max_in = -1;
  fused.attrs = {{"body", AttrType::Word, true, "", {}, true}};
  fused.internal = true;
  fused.infer = infer_fused;
  cut_elementwise(fused);
  ops.push_back(fused);
  return ops;
}

}  // namespace maco::ops
