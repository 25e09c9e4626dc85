// attention: softmax(q k^T * scale) v for each head. A task computes a few query rows of one head,
// or on tensor cores many rows of heads that share keys. It goes over all keys that count.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/functions/attention.h"
#include "compiler/ops/attention.h"
#include "compiler/ops/by_rows.h"
#include "compiler/ops/families.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

namespace {

constexpr int64_t kMostDimByRows = 2048;  // queries and scores of a task stay in shared memory

std::string name_of(const InferContext& c, int i) {
  return c.graph()[c.op().in[static_cast<size_t>(i)]].name;
}

void check_length(InferContext& c) {
  const auto length = c.expr("length");
  if (!length) return;
  const ir::Expr rows = c.extent(1, 0);
  const auto lookup = [&](std::string_view n) { return c.graph().range_of(n); };
  const auto range = ir::bounds(*length, lookup);
  const auto spare = ir::bounds(ir::canonical(rows - *length), lookup);
  if (!range || !spare) {
    c.error_attr("length", fmt::format("'length' of 'attention' is {}, whose range is not known",
                                       length->str()));
  } else if (range->lo < 1) {
    const std::string what = length->constant() ? "" : fmt::format(", which may be {}", range->lo);
    c.error_attr("length", fmt::format("'length' of 'attention' is {}{}, but must be at least 1",
                                       length->str(), what));
  } else if (spare->lo < 0) {
    const std::string what = length->constant() ? "" : fmt::format(", which may be {}", range->hi);
    c.error_attr("length", fmt::format("'length' of 'attention' is {}{}, but '{}' has {} rows",
                                       length->str(), what, name_of(c, 1), rows.str()));
    c.note_in(1);
  }
}

void infer(InferContext& c) {
  for (int i = 0; i < 3; ++i) {
    if (!expect_float(c, i)) continue;
    const size_t axes = c.in(i).shape.size();
    if (axes != 2) {
      c.error_in(i, fmt::format("'attention' needs 2 axes, but {} has {}",
                                describe(c.graph(), c.op().in[static_cast<size_t>(i)]), axes));
      c.note_in(i);
    }
  }
  const int64_t d = c.integer("head_dim", 0);
  if (c.failed()) return;
  if (d < 1) {
    c.error_attr("head_dim",
                 fmt::format("'head_dim' of 'attention' must be at least 1, not {}", d));
    return;
  }
  if (c.in(1).shape != c.in(2).shape) {
    c.error_in(2,
               fmt::format("'attention' needs keys and values of one shape, but has {} and {}",
                           describe(c.graph(), c.op().in[1]), describe(c.graph(), c.op().in[2])));
    c.note_in(2);
    return;
  }
  check_columns(c, *c.extent(0, 1).constant());
  const int64_t q_cols = columns_of(c, *c.extent(0, 1).constant()).count,
                k_cols = *c.extent(1, 1).constant();
  for (int i = 0; i < 2; ++i) {
    const int64_t cols = i == 0 ? q_cols : k_cols;
    if (cols % d != 0) {
      c.error_in(i, fmt::format("'attention' cuts rows into heads of {}, but {} has rows of {}", d,
                                describe(c.graph(), c.op().in[static_cast<size_t>(i)]), cols));
      c.note_in(i);
    }
  }
  if (c.failed()) return;
  if (q_cols / d % (k_cols / d) != 0) {
    c.error_in(
        0,
        fmt::format("'attention' needs a multiple of the heads of '{}' ({}) in '{}', which has {}",
                    name_of(c, 1), k_cols / d, name_of(c, 0), q_cols / d));
    c.note_in(0);
  }
  check_length(c);
  check_window_and_cap(c, d);
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), {c.extent(0, 0), ir::Expr(q_cols)});
}

struct Heads {
  int64_t dim = 1, all = 1, shared = 1;  // shared: heads that share their keys
  int64_t group() const { return all / shared; }
};
Heads heads_of(const TileContext& c) {
  Heads h;
  h.dim = c.integer("head_dim", 1);
  h.all = columns_of(c, c.in(0).cols).count / h.dim;
  h.shared = c.in(1).cols / h.dim;
  return h;
}

int64_t window_of(const TileContext& c) {
  return functions::window_over(c.in(1).max_rows, c.integer("window", 0));
}

// A task on tensor cores has many rows: a number of rows of one head, and the same rows of as many
// other heads with the same keys as there is room for.
constexpr int64_t kFragment = 16;
bool takes_tensor_cores(const TileContext& c) {
  const Heads h = heads_of(c);
  const ir::DType type = c.in(0).dtype, result = c.out(0).dtype;
  const auto is_half = [](ir::DType t) { return t == ir::DType::BF16 || t == ir::DType::F16; };
  const auto in_chunks = [&](int64_t cols) { return cols % 8 == 0; };
  return in_chunks(c.in(0).cols) && in_chunks(columns_of(c, c.in(0).cols).first) && is_half(type) &&
         c.in(1).dtype == type && c.in(2).dtype == type &&
         (is_half(result) || result == ir::DType::F32) &&
         functions::takes_head(h.dim, c.machine().page_bytes) && c.machine().has_mma(type);
}
int64_t heads_at_once(const Heads& h, int64_t rows) {
  int64_t n = std::min(h.group(), functions::kTileRows / rows);
  while (h.group() % n != 0) --n;
  return n;
}

// The most queries of a task on ordinary cores, whose results must fit in registers.
int64_t most_queries(const TileContext& c) {
  return std::max<int64_t>(1, std::min<int64_t>(8, 1024 / c.integer("head_dim", 1)));
}

// How scores and sums are added, which decides a row's bits: on ordinary cores, on tensor cores by
// one warp, or on tensor cores by four warps together.
const std::vector<std::string> kMethods = {"block", "mma", "wgmma"};

// The box in which keys and values come; nothing if they don't come in boxes.
std::optional<ir::Load::Box> box_of(const TileContext& c) {
  const Mat k = c.in(1);
  if (!c.machine().has_boxes() || k.dynamic())
    return std::nullopt;  // boxes need rows that every launch has
  return functions::tile_box(heads_of(c).dim, k.cols, c.machine().page_bytes);
}
bool takes_groups(const TileContext& c) {
  return takes_tensor_cores(c) && c.machine().has_wgmma() && box_of(c) &&
         c.out(0).dtype == c.in(0).dtype;
}

Cut choose_on_tensor_cores(const Heads& h, const std::string& method) {
  // As many rows as a task has room for. Of such cuts the one with the most heads is best, as rows
  // of the same token end at nearly the same key.
  int64_t best = kFragment;
  for (int64_t n = kFragment; n <= functions::kTileRows; n *= 2)
    if (n * heads_at_once(h, n) > best * heads_at_once(h, best)) best = n;
  return {method, {best}};
}
Cut choose(const TileContext& c) {
  const Heads h = heads_of(c);
  const std::string given = cut_of(c.op()).method;
  const bool many = c.typical(c.in(0).rows) * h.group() >= functions::kManyRows;
  if (given.empty() ? many && takes_tensor_cores(c) : given != kMethods[0])
    return choose_on_tensor_cores(
        h, kMethods[given == kMethods[2] || (given.empty() && takes_groups(c)) ? 2 : 1]);
  int64_t block = 1;
  while (2 * block <= most_queries(c) && block < c.in(0).max_rows) block *= 2;
  return {kMethods[0], {block}};
}
std::string slow(const TileContext& c, const Cut& cut) {
  const Heads h = heads_of(c);
  const ir::DType q = c.in(0).dtype, k = c.in(1).dtype, v = c.in(2).dtype;
  const bool many = c.typical(c.in(0).rows) * h.group() >= functions::kManyRows;
  if (cut.method != kMethods[0] || !many || !c.machine().has_mma(ir::DType::BF16)) return "";
  const auto runs = [](const std::string& why) { return "runs without tensor cores: " + why; };
  if (q != k || q != v)
    return runs(fmt::format("q, k and v are {}, {} and {}; cast them to one of bf16 and f16",
                            ir::name(q), ir::name(k), ir::name(v)));
  if (!c.machine().has_mma(q) || (q != ir::DType::BF16 && q != ir::DType::F16))
    return runs(fmt::format("q, k and v are {}; cast them to bf16 or f16", ir::name(q)));
  if (!functions::takes_head(h.dim, c.machine().page_bytes))
    return runs(fmt::format("head_dim = {} isn't a multiple of 8 up to {} whose keys fill pages",
                            h.dim, functions::kMostHeadDim));
  if (c.in(0).cols % 8 != 0 || columns_of(c, c.in(0).cols).first % 8 != 0)
    return runs(
        fmt::format("rows of q have {} columns, from column {} on; both are to be "
                    "multiples of 8",
                    c.in(0).cols, columns_of(c, c.in(0).cols).first));
  return "";
}
std::string refuse_cut(const TileContext& c, const Cut& cut) {
  const bool by_mma = cut.method != kMethods[0];
  if (by_mma && !takes_tensor_cores(c))
    return fmt::format(
        "method '{}' takes q, k and v all bf16 or all f16 as target '{}' multiplies them, a result "
        "of bf16, f16 or f32, and a 'head_dim' of a multiple of 8 up to {} whose keys fill pages",
        cut.method, c.machine().target, functions::kMostHeadDim);
  if (cut.method == kMethods[2] && !takes_groups(c))
    return fmt::format(
        "method '{}' takes a target that multiplies by four warps together, keys of a fixed "
        "number of rows, and a result of the type of q",
        cut.method);
  const int64_t n = cut.tile[0], least = by_mma ? kFragment : 1,
                most = by_mma ? functions::kTileRows : most_queries(c);
  if (n >= least && n <= most && (n & (n - 1)) == 0) return "";
  return fmt::format("a tile of method '{}' has a power of two of rows from {} to {}, not {}",
                     cut.method, least, most, n);
}

// Tasks have `rows` query rows of `heads` heads, and go over blocks of `block_keys` keys.
struct Tasks {
  ir::CallId call{};
  int64_t rows = 1, heads = 1, block_keys = functions::kBlockKeys;
  bool loads = false, boxes = false;
};
Tasks make_call(TileContext& c, const Heads& h, const ir::Expr& length) {
  const Mat q = c.in(0), k = c.in(1), v = c.in(2), y = c.out(0);
  const Cut cut = c.cut();
  const int64_t q_begin = columns_of(c, q.cols).first;
  Tasks t{.rows = cut.tile[0]};
  const std::vector<ir::BufferId> operands = {q.buffer, k.buffer, v.buffer, y.buffer};
  const ir::Param scale = {"scale", c.number("scale", 1 / std::sqrt(static_cast<double>(h.dim)))};
  const ir::Param softcap = {"softcap", c.number("softcap", 0)};
  const ir::Param window = {"window", window_of(c)};
  const ir::Param causal = {"causal", c.flag("causal", false)};
  if (cut.method == kMethods[0]) {
    t.call = c.call("attention",
                    {{"Q", q.dtype},
                     {"K", k.dtype},
                     {"V", v.dtype},
                     {"Y", y.dtype},
                     c.value("rows", q.rows),
                     c.value("length", length),
                     {"q_cols", q.cols},
                     {"q_begin", q_begin},
                     {"HQ", h.all},
                     {"HKV", h.shared},
                     {"D", h.dim},
                     {"BQ", t.rows},
                     causal,
                     scale,
                     softcap,
                     window},
                    operands);
    return t;
  }
  const bool groups = cut.method == kMethods[2];
  if (groups)
    c.program().uses.scratch_bytes =
        std::max(c.program().uses.scratch_bytes, functions::tile_scratch(h.dim, groups));
  t.heads = heads_at_once(h, t.rows);
  t.block_keys = functions::tile_keys(h.dim, c.machine().page_bytes);
  t.loads = true;
  const auto box = box_of(c);
  t.boxes = box.has_value();
  std::vector<ir::Load> loads;
  for (uint32_t operand : {1u, 2u})
    loads.push_back({.operand = operand,
                     .pages = 1,
                     .page_bytes = c.machine().page_bytes,
                     .box = box,
                     .ahead = true});
  t.call = c.call("attention_tile",
                  {{"X", q.dtype},
                   {"Y", y.dtype},
                   c.value("rows", q.rows),
                   c.value("length", length),
                   {"q_cols", q.cols},
                   {"q_begin", q_begin},
                   {"HQ", h.all},
                   {"HKV", h.shared},
                   {"D", h.dim},
                   {"HB", t.heads},
                   {"BT", t.rows},
                   causal,
                   {"boxes", t.boxes},
                   {"wgmma", groups},
                   scale,
                   softcap,
                   window},
                  operands, std::move(loads));
  return t;
}

void tile(TileContext& c) {
  const Mat q = c.in(0), k = c.in(1), v = c.in(2), y = c.out(0);
  const Heads h = heads_of(c);
  if (h.dim > kMostDimByRows) {
    c.error(fmt::format(
        "'attention' has a 'head_dim' of {}, but {} is the most that fits in shared memory", h.dim,
        kMostDimByRows));
    return;
  }
  const bool causal = c.flag("causal", false);
  const int64_t q0 = columns_of(c, q.cols).first;
  const ir::Expr length = c.expr("length").value_or(k.rows);
  const Tasks t = make_call(c, h, length);
  const int64_t most_keys = std::min(k.max_rows, c.range(length).hi);
  const int64_t window = window_of(c), fewest_before = c.range(ir::canonical(length - q.rows)).lo;
  const int64_t blocks = tiles_of(q.max_rows, t.rows), across = h.all / t.heads;
  c.announce_all(blocks * across);
  for (int64_t i = 0; i < blocks; ++i) {
    // With a causal mask the longest tasks come first, so that SMs end together.
    const int64_t block_row = causal ? blocks - 1 - i : i, r = block_row * t.rows;
    auto tile = static_cast<uint32_t>(block_row * across);
    int64_t keys = most_keys;
    if (causal && q.rows.is_constant() && length.is_constant())
      keys = std::clamp<int64_t>(most_keys - q.max_rows + std::min(r + t.rows, q.max_rows), 0,
                                 most_keys);
    // A box also brings rows behind the keys that count. A task with loads must declare that it
    // reads something.
    if (t.boxes) keys = std::min(tiles_of(keys, t.block_keys) * t.block_keys, k.max_rows);
    if (t.loads) keys = std::max<int64_t>(keys, 1);
    // The block with the first key that the first row sees.
    int64_t first_key = 0;
    if (window > 0)
      first_key =
          std::max<int64_t>(fewest_before + r + 1 - window, 0) / t.block_keys * t.block_keys;
    for (int64_t head = 0; head < h.all; head += t.heads, ++tile) {
      const int64_t kv = head / h.group() * h.dim, d0 = head * h.dim, d1 = (head + t.heads) * h.dim;
      std::vector<ir::Access> accesses = {read(box(q, r, r + t.rows, q0 + d0, q0 + d1))};
      if (keys > 0) {
        accesses.push_back(read(box(k, first_key, keys, kv, kv + h.dim)));
        accesses.push_back(read(box(v, first_key, keys, kv, kv + h.dim)));
      }
      accesses.push_back(write(box(y, r, r + t.rows, d0, d1)));
      c.task(t.call, tile, std::move(accesses));
    }
  }
}

}  // namespace

void check_window_and_cap(InferContext& c, int64_t head_dim) {
  const std::string& op = c.op().kind;
  if (c.has("window")) {
    const int64_t window = c.integer("window", 1);
    if (window < 1)
      c.error_attr("window",
                   fmt::format("'window' of '{}' must be at least 1, not {}", op, window));
    else if (!c.flag("causal", false))
      c.error_attr("window",
                   fmt::format("'window' of '{}' counts keys back from each query, which takes "
                               "'causal = true'",
                               op));
  }
  if (!c.has("softcap")) return;
  const double cap = c.number("softcap", 1),
               scale = c.number("scale", 1 / std::sqrt(static_cast<double>(head_dim)));
  // Device code has a few times as much, too.
  const auto in_f32 = [](double x) {
    using Limits = std::numeric_limits<float>;
    return std::abs(x) >= Limits::min() && 4 * std::abs(x) <= Limits::max();
  };
  if (!(cap > 0))
    c.error_attr("softcap", fmt::format("'softcap' of '{}' must be above 0, not {}", op, cap));
  else if (!in_f32(cap) || !(in_f32(scale / cap) || scale == 0))
    c.error_attr("softcap",
                 fmt::format("'softcap' of '{}' is {}, which f32 can't have beside a 'scale' of {}",
                             op, cap, scale));
}

std::vector<OpDef> attention_ops() {
  OpDef d;
  d.kind = "attention";
  d.summary = "softmax(q k^T * scale) v for each head, with grouped heads";
  d.min_in = d.max_in = 3;
  d.attrs = {{"head_dim", AttrType::Int, true, "", {}, false},
             {"causal", AttrType::Bool, false, "false", {}, false},
             {"scale", AttrType::Number, false, "1/sqrt(head_dim)", {}, false},
             {"length", AttrType::RuntimeInt, false, "rows of k", {}, false},
             {"window", AttrType::Int, false, "", {}, false},
             {"softcap", AttrType::Number, false, "", {}, false},
             kFirstColumn,
             kColumns};
  d.infer = infer;
  d.methods = kMethods;
  d.slow = slow;
  d.tile_axes = {"rows"};
  d.choose = choose;
  d.refuse_cut = refuse_cut;
  d.tile = tile;
  d.refuse_stage = by_first_rows;
  return {d};
}

}  // namespace maco::ops
