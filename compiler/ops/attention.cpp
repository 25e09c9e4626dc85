// attention: softmax(q k^T * scale) v for each head. A task is a few query rows of one head; it
// goes over all keys that count.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/ops/families.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

namespace {

constexpr int64_t kMostHeadDim = 2048;  // queries and scores of a task stay in shared memory

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
  const int64_t q_cols = *c.extent(0, 1).constant(), k_cols = *c.extent(1, 1).constant();
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
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), c.in(0).shape);
}

// Queries of a task: what registers hold of their results.
int64_t most_queries(const TileContext& c) {
  return std::max<int64_t>(1, std::min<int64_t>(8, 1024 / c.integer("head_dim", 1)));
}
Cut choose(const TileContext& c) {
  int64_t block = 1;
  while (2 * block <= most_queries(c) && block < c.in(0).max_rows) block *= 2;
  return {.tile = {block}};
}
std::string refuse_cut(const TileContext& c, const Cut& cut) {
  const int64_t n = cut.tile[0];
  if (n <= most_queries(c) && (n & (n - 1)) == 0) return "";
  return fmt::format("a tile has a power of two of rows, at most {}, not {}", most_queries(c), n);
}

void tile(TileContext& c) {
  const Mat q = c.in(0), k = c.in(1), v = c.in(2), y = c.out(0);
  const int64_t d = c.integer("head_dim", 0), heads = q.cols / d, kv_heads = k.cols / d;
  if (d > kMostHeadDim) {
    c.error(fmt::format(
        "'attention' has a 'head_dim' of {}, but {} is the most that fits in shared memory", d,
        kMostHeadDim));
    return;
  }
  const bool causal = c.flag("causal", false);
  const ir::Expr length = c.expr("length").value_or(k.rows);
  const int64_t block = c.cut().tile[0];
  const ir::CallId call =
      c.call("attention",
             {{"Q", q.dtype},
              {"K", k.dtype},
              {"V", v.dtype},
              {"Y", y.dtype},
              c.value("rows", q.rows),
              c.value("length", length),
              {"HQ", heads},
              {"HKV", kv_heads},
              {"D", d},
              {"BQ", block},
              {"causal", causal},
              {"scale", c.number("scale", 1 / std::sqrt(static_cast<double>(d)))}},
             {q.buffer, k.buffer, v.buffer, y.buffer});
  const int64_t most_keys = std::min(k.max_rows, c.range(length).hi);
  c.announce_all(tiles_of(q.max_rows, block) * heads);
  uint32_t tile = 0;
  for (int64_t r = 0; r < q.max_rows; r += block) {
    int64_t keys = most_keys;
    if (causal && q.rows.is_constant() && length.is_constant())
      keys = std::clamp<int64_t>(most_keys - q.max_rows + r + block, 0, most_keys);
    for (int64_t h = 0; h < heads; ++h, ++tile) {
      const int64_t kv = h / (heads / kv_heads);
      std::vector<ir::Access> accesses = {read(box(q, r, r + block, h * d, (h + 1) * d))};
      if (keys > 0) {
        accesses.push_back(read(box(k, 0, keys, kv * d, (kv + 1) * d)));
        accesses.push_back(read(box(v, 0, keys, kv * d, (kv + 1) * d)));
      }
      accesses.push_back(write(box(y, r, r + block, h * d, (h + 1) * d)));
      c.task(call, tile, std::move(accesses));
    }
  }
}

}  // namespace

std::vector<OpDef> attention_ops() {
  OpDef d;
  d.kind = "attention";
  d.summary = "softmax(q k^T * scale) v for each head, with grouped heads";
  d.min_in = d.max_in = 3;
  d.attrs = {{"head_dim", AttrType::Int, true, "", {}, false},
             {"causal", AttrType::Bool, false, "false", {}, false},
             {"scale", AttrType::Number, false, "1/sqrt(head_dim)", {}, false},
             {"length", AttrType::RuntimeInt, false, "rows of k", {}, false}};
  d.infer = infer;
  d.tile_axes = {"rows"};
  d.choose = choose;
  d.refuse_cut = refuse_cut;
  d.tile = tile;
  return {d};
}

}  // namespace maco::ops
