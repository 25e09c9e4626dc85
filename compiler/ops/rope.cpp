// rope: rotary position embedding. Pair i of a head is rotated by position * theta^(-2i /
// rotary_dim); `scaling` stretches slow pairs. Alternatively the pairs' frequencies are an operand,
// or cosines and sines are: row `position` of two tables. rope_sines: the sines and cosines of
// angles, for matmuls that rotate heads.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "compiler/ops/attrs.h"
#include "compiler/ops/by_rows.h"
#include "compiler/ops/families.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/rope.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

using Scaling = std::map<std::string, double>;

namespace {

const Scaling* scaling_of(const ir::Op& op) {
  auto it = op.attrs.find("scaling");
  return it == op.attrs.end() ? nullptr : std::get_if<Scaling>(&it->second.value);
}

void check_scaling(InferContext& c, const Scaling& s) {
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position"}) {
    auto it = s.find(key);
    if (it == s.end()) {
      c.error_attr("scaling", fmt::format("'scaling' lacks '{}'", key));
    } else if (!(it->second > 0)) {
      c.error_attr("scaling",
                   fmt::format("'{}' of 'scaling' must be above 0, not {}", key, it->second));
    }
  }
  if (!c.failed() && !(s.at("high_freq_factor") > s.at("low_freq_factor")))
    c.error_attr("scaling",
                 fmt::format("'high_freq_factor' ({}) must be above 'low_freq_factor' ({})",
                             s.at("high_freq_factor"), s.at("low_freq_factor")));
}

// Whether `shape` has a position for each row of x.
bool fits_rows(const ir::Shape& x, const ir::Shape& shape) {
  return shape == ir::Shape(x.begin(), x.end() - 1) || shape == ir::Shape{leading(x)};
}

void check_positions(InferContext& c, int64_t pairs) {
  const std::string& name = c.graph()[c.op().in[1]].name;
  const Type p = c.in(1);
  if (p.dtype != ir::DType::I32) {
    const bool frequencies = p.dtype == ir::DType::F32 && p.shape == ir::Shape{ir::Expr(pairs)};
    c.error_in(
        1, fmt::format("'rope' takes positions in i32, but '{}' is {}{}", name, ir::name(p.dtype),
                       frequencies ? "; frequencies come behind them, or with 'position'" : ""));
    c.note_in(1);
    return;
  }
  const ir::Shape& x = c.in(0).shape;
  if (!fits_rows(x, p.shape)) {
    c.error_in(1, fmt::format("'rope' of {} needs a position for each row, [{}], but '{}' has {}",
                              describe(c.graph(), c.op().in[0]), leading(x).str(), name,
                              to_string(p.shape)));
    c.note_in(1);
  }
}

// Checks `position`, `theta` and `scaling`.
void check_turns(InferContext& c) {
  if (const auto position = c.expr("position")) {
    // Launches pass the position in 32 bits, and refuse run-time values that don't fit.
    const auto range =
        ir::bounds(*position, [&](std::string_view n) { return c.graph().range_of(n); });
    if (range && (range->hi < INT32_MIN || range->lo > INT32_MAX))
      c.error_attr("position", fmt::format("'position' is {}, but positions are 32-bit integers",
                                           position->str()));
  }
  // With smaller values frequencies are too large for angles to be told apart.
  if (!(c.number("theta", 10000) >= 1e-6)) c.error_attr("theta", "'theta' must be at least 1e-6");
  if (const Scaling* s = scaling_of(c.op())) check_scaling(c, *s);
}

// Refuses `theta` and `scaling` if an operand replaces them.
void refuse_theta(InferContext& c, std::string_view what) {
  for (const char* attr : {"theta", "scaling"})
    if (c.has(attr))
      c.error_attr(attr, fmt::format("'{}' says how 'rope' works out {}", attr, what));
}

// Checks the cosines, input `first`, and the sines behind it. They must have as many columns as a
// head has rotated elements, or pairs of these, and as many rows as there are positions.
void check_tables(InferContext& c, int first, int64_t head_dim, int64_t d) {
  const auto named = [&](int i) { return describe(c.graph(), c.op().in[static_cast<size_t>(i)]); };
  const Type cosines = c.in(first), sines = c.in(first + 1);
  if (!expect_float(c, first) || !expect_float(c, first + 1)) return;
  if (cosines.dtype != sines.dtype || cosines.shape != sines.shape) {
    c.error_in(first + 1,
               fmt::format("'rope' takes cosines and sines of one type and shape, but {} and {} "
                           "differ",
                           named(first), named(first + 1)));
    c.note_in(first);
    return;
  }
  if (cosines.shape.size() != 2 ||
      (cosines.shape[1] != ir::Expr(d) && cosines.shape[1] != ir::Expr(d / 2))) {
    c.error_in(first,
               fmt::format("'rope' of heads of {}{} takes cosines of {} or {} columns, a row "
                           "for each position, but {} has {}",
                           head_dim, d < head_dim ? fmt::format(" of which {} turn", d) : "", d / 2,
                           d, named(first), to_string(cosines.shape)));
    c.note_in(first);
    return;
  }
  refuse_theta(c, "angles, but their cosines and sines are operands here");
  const auto position = c.expr("position");
  if (!position || c.failed()) return;
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  const auto lowest = ir::bounds(ir::canonical(*position), range);
  const ir::Expr end = ir::canonical(*position + leading(c.in(0).shape));
  const auto spare = ir::bounds(ir::canonical(cosines.shape[0] - end), range);
  if (!lowest || lowest->lo < 0) {
    c.error_attr("position", fmt::format("'position' is '{}', which may be negative, but {} has no "
                                         "such rows",
                                         position->str(), named(first)));
  } else if (!spare || spare->lo < 0) {
    const auto last = ir::bounds(end, range);
    c.error_attr("position", fmt::format("positions [{}, {}) end at up to {}, but {} has {} rows",
                                         position->str(), end.str(),
                                         last ? std::to_string(last->hi) : "an unknown row",
                                         named(first), cosines.shape[0].str()));
    c.note_in(first);
  }
}

// Checks that positions are given, and only once. This follows from what the second input is, and
// from the number of inputs.
void check_where(InferContext& c) {
  const int others = c.inputs() - 1;
  const bool position = c.has("position");
  const auto is_positions = [&] {
    const Type second = c.in(1);
    return second.dtype == ir::DType::I32 &&
           (others == 1 || fits_rows(c.in(0).shape, second.shape));
  };
  const bool both = position && (others == 3 || (others > 0 && is_positions()));
  const bool neither = !position && (others == 0 || (others == 2 && ir::is_float(c.in(1).dtype)));
  if (both || neither)
    c.error(fmt::format("'rope' takes 'position' or a second input with positions, and has {}",
                        both ? "both" : "neither"));
}

void infer(InferContext& c) {
  if (!expect_float(c, 0) || !expect_constant_row(c, 0)) return;
  check_columns(c, *c.extent(0, -1).constant());
  const int64_t d = c.integer("head_dim", 0),
                cols = columns_of(c, *c.extent(0, -1).constant()).count;
  if (c.failed()) return;
  if (d < 2 || d % 2 != 0) {
    c.error_attr("head_dim",
                 fmt::format("'head_dim' of 'rope' must be even and at least 2, not {}", d));
  } else if (cols % d != 0) {
    c.error_in(0, fmt::format("'rope' cuts rows into heads of {}, but {} has rows of {}", d,
                              describe(c.graph(), c.op().in[0]), cols));
    c.note_in(0);
  }
  if (c.failed()) return;
  const int64_t turned = check_rotary(c, d);
  check_where(c);
  if (c.failed()) return;
  const RopeInputs inputs = rope_inputs(c.op());
  if (inputs.positions > 0) check_positions(c, turned / 2);
  check_turns(c);
  if (inputs.tables > 0) check_tables(c, inputs.tables, d, turned);
  if (inputs.frequencies > 0) {
    check_frequencies(c, inputs.frequencies, turned / 2);
    refuse_theta(c, "frequencies, but they are an operand here");
  }
  ir::Shape shape = c.in(0).shape;
  shape.back() = ir::Expr(cols);
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), shape);
}

// How far pair i rotates from one position to the next, in radians.
double frequency(int64_t pair, int64_t rotary_dim, double theta, const Scaling* scaling) {
  const double f =
      std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
  if (!scaling) return f;
  const double factor = scaling->at("factor"), low = scaling->at("low_freq_factor"),
               high = scaling->at("high_freq_factor");
  // Rotations over the original context.
  const double turns = scaling->at("original_max_position") * f / (2 * std::numbers::pi);
  if (turns < low) return f / factor;
  if (turns > high) return f;
  const double keep = (turns - low) / (high - low);
  return (1 - keep) * f / factor + keep * f;
}

}  // namespace

RopeInputs rope_inputs(const ir::Op& op) {
  RopeInputs inputs;
  int next = 1;
  if (op.attrs.count("position") == 0) inputs.positions = next++;
  switch (static_cast<int>(op.in.size()) - next) {
    case 1: inputs.frequencies = next; break;
    case 2: inputs.tables = next; break;
    default: break;
  }
  return inputs;
}

int64_t rotary_dim(const ir::Graph& graph, const ir::Op& op) {
  auto turned = attr_expr(graph, op, "rotary_dim");
  if (!turned) turned = attr_expr(graph, op, "head_dim");
  return turned.value_or(ir::Expr(0)).constant().value_or(0);
}

int64_t check_rotary(InferContext& c, int64_t head_dim) {
  const int64_t turned = c.integer("rotary_dim", head_dim);
  if (!c.failed() && (turned < 2 || turned % 2 != 0 || turned > head_dim))
    c.error_attr("rotary_dim", fmt::format("'rotary_dim' of '{}' must be an even number from 2 to "
                                           "'head_dim', which is {}, not {}",
                                           c.op().kind, head_dim, turned));
  return turned;
}

void check_frequencies(InferContext& c, int i, int64_t pairs) {
  const Type f = c.in(i);
  if (f.dtype == ir::DType::F32 && f.shape == ir::Shape{ir::Expr(pairs)}) return;
  const std::string named = describe(c.graph(), c.op().in[static_cast<size_t>(i)]);
  c.error_in(i, fmt::format("'{}' takes a frequency in f32 for each pair of elements that turn, "
                            "[{}], but {} is {}{}",
                            c.op().kind, pairs, named, ir::name(f.dtype),
                            f.shape.size() == 2 ? "; cosines and sines are two operands" : ""));
  c.note_in(i);
}

ir::Table rope_turns(const ir::Op& op, int64_t rotary_dim) {
  const double theta = attr_number(op, "theta", 10000);
  const Scaling* scaling = scaling_of(op);
  ir::Table table;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    double turns = frequency(i, rotary_dim, theta, scaling) / (2 * std::numbers::pi);
    turns -= std::floor(turns);
    table.words.push_back(static_cast<uint64_t>(std::ldexp(turns, 64)));
  }
  return table;
}

namespace {

void tile(TileContext& c) {
  const RowView x = row_view(c, c.op().in[0]), y = row_view(c, c.op().out[0]);
  const RopeInputs inputs = rope_inputs(c.op());
  const int64_t d = c.integer("head_dim", 0);
  const int64_t block = c.cut().tile[0];
  const Columns columns = columns_of(c, x.max_cols);
  const int first = inputs.given(), end = first > 0 ? static_cast<int>(c.op().in.size()) : first;
  const int64_t turned = rotary_dim(c.graph(), c.op());
  std::vector<ir::BufferId> operands = {x.mat.buffer};
  for (int i = first; i < end; ++i) operands.push_back(c.in(i).buffer);
  if (inputs.positions > 0) operands.push_back(c.in(inputs.positions).buffer);
  operands.push_back(y.mat.buffer);
  std::vector<ir::Param> params = {{"X", x.mat.dtype},
                                   {"Y", y.mat.dtype},
                                   c.value("rows", x.rows),
                                   {"x_cols", x.max_cols},
                                   {"x_begin", columns.first},
                                   {"H", columns.count / d},
                                   {"D", d},
                                   {"R", turned},
                                   {"BR", block},
                                   {"interleaved", c.flag("interleaved", false)},
                                   {"from_positions", inputs.positions > 0},
                                   c.value("position", c.expr("position").value_or(ir::Expr(0))),
                                   {"factor", c.number("attention_factor", 1)}};
  const char* function = "rope";
  if (inputs.tables > 0) {
    function = "rope_tables";
    const Mat table = c.in(inputs.tables);
    params.push_back({"T", table.dtype});
    params.push_back({"table_cols", table.cols});
    params.push_back(c.value("limit", table.rows));
  } else if (inputs.frequencies > 0) {
    function = "rope_frequencies";
  } else {
    params.push_back({"turns", rope_turns(c.op(), turned)});
  }
  const ir::CallId call = c.call(function, std::move(params), std::move(operands));
  c.announce_all(tiles_of(x.max_rows, block));
  for (int64_t r = 0; r < x.max_rows; r += block) {
    std::vector<ir::Access> accesses = {
        read(columns.count == x.max_cols
                 ? x.block(r, r + block)
                 : box(x.mat, r, r + block, columns.first, columns.first + columns.count))};
    for (int i = first; i < end; ++i) accesses.push_back(read(whole(c.in(i))));
    if (inputs.positions > 0)
      accesses.push_back(read(one_per_row(c.in(inputs.positions), r, r + block)));
    accesses.push_back(write(y.block(r, r + block)));
    c.task(call, static_cast<uint32_t>(r / block), std::move(accesses));
  }
}

// Infers the result of rope_sines: for each pair of a row its sine and its cosine, side by side.
// The op may have frequencies.
void infer_sines(InferContext& c) {
  const int64_t d = c.integer("head_dim", 0);
  const ir::Expr rows = c.expr("rows").value_or(ir::Expr(0));
  const auto range = ir::bounds(rows, [&](std::string_view n) { return c.graph().range_of(n); });
  if (!range || range->lo < 1)
    c.error_attr("rows",
                 fmt::format("'rows' of 'rope_sines' must be at least 1, not {}", rows.str()));
  if (d < 2 || d % 2 != 0)
    c.error_attr("head_dim",
                 fmt::format("'head_dim' of 'rope_sines' must be even and at least 2, not {}", d));
  check_turns(c);
  if (!c.failed()) check_rotary(c, d);
  if (c.inputs() > 0) check_frequencies(c, 0, d / 2);
  if (!c.failed()) c.set_out(0, ir::DType::F32, {rows, ir::Expr(d)});
}

// As many rows in a task as give each SM a task, but at least some pairs for each thread.
Cut choose_sines(const TileContext& c) {
  constexpr int64_t least = 1024;
  const Mat y = c.out(0);
  return {.tile = {std::min(y.max_rows, std::max(tiles_of(y.max_rows, c.machine().sms),
                                                 tiles_of(least, y.cols)))}};
}

void tile_sines(TileContext& c) {
  const Mat y = c.out(0);
  const int64_t block = c.cut().tile[0];
  const bool given = !c.op().in.empty();
  std::vector<ir::BufferId> operands;
  if (given) operands.push_back(c.in(0).buffer);
  operands.push_back(y.buffer);
  const ir::CallId call = c.call("rope_sines",
                                 {c.value("rows", y.rows),
                                  {"D", y.cols},
                                  {"BR", block},
                                  c.value("position", c.expr("position").value_or(ir::Expr(0))),
                                  {"by_radians", given},
                                  {"factor", c.number("attention_factor", 1)},
                                  {"turns", given ? ir::Table{{0}} : rope_turns(c.op(), y.cols)}},
                                 std::move(operands));
  c.announce_all(tiles_of(y.max_rows, block));
  for (int64_t r = 0; r < y.max_rows; r += block) {
    std::vector<ir::Access> accesses;
    if (given) accesses.push_back(read(whole(c.in(0))));
    accesses.push_back(write(box(y, r, r + block, 0, y.cols)));
    c.task(call, static_cast<uint32_t>(r / block), std::move(accesses));
  }
}

}  // namespace

std::vector<OpDef> rope_ops() {
  OpDef d;
  d.kind = "rope";
  d.summary = "rotary position embedding of each head";
  d.min_in = 1;
  d.max_in = 4;
  d.attrs = {{"head_dim", AttrType::Int, true, "", {}, false},
             {"position", AttrType::RuntimeInt, false, "", {}, false},
             {"theta", AttrType::Number, false, "10000", {}, false},
             {"interleaved", AttrType::Bool, false, "false", {}, false},
             {"scaling", AttrType::Scaling, false, "", {}, false},
             {"rotary_dim", AttrType::Int, false, "head_dim", {}, false},
             {"attention_factor", AttrType::Number, false, "1", {}, false},
             kFirstColumn,
             kColumns};
  d.infer = infer;
  d.tile_axes = kRowAxes;
  d.choose = choose_rows;
  d.tile = tile;
  // Positions have the rows of x, too.
  d.refuse_stage = [](const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut) {
    std::vector<bool> others = cut;
    if (const int positions = rope_inputs(op).positions; positions > 0)
      others[static_cast<size_t>(positions)] = false;
    return by_whole_rows(graph, op, others);
  };
  OpDef sines;
  sines.kind = "rope_sines";
  sines.summary = "sines and cosines of rope's angles, made for products that turn heads";
  sines.internal = true;
  sines.min_in = 0;
  sines.max_in = 1;
  sines.attrs = {{"rows", AttrType::RuntimeInt, true, "", {}, false},
                 {"head_dim", AttrType::Int, true, "", {}, false},
                 {"position", AttrType::RuntimeInt, false, "0", {}, false},
                 {"theta", AttrType::Number, false, "10000", {}, false},
                 {"scaling", AttrType::Scaling, false, "", {}, false},
                 {"attention_factor", AttrType::Number, false, "1", {}, false}};
  sines.infer = infer_sines;
  sines.tile_axes = kRowAxes;
  sines.choose = choose_sines;
  sines.tile = tile_sines;
  return {d, sines};
}

}  // namespace maco::ops
