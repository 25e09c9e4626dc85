// attention_step: attention of a few new rows over a cache and over themselves. The rule
// `attention` of `fuse` makes it of an attention, the kv_appends before it, and the ops that
// prepare their operands: slices, norms of each head, rope. It also returns the new rows of keys
// and values, for kv_appends behind it. Where the caches have the new rows already (`stored`), k
// and v are the caches.
//
// A task has some rows and some of the heads that share keys, over one of the splits of the cache.
// If there are several splits, tasks of a second kind merge their results.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/functions/attention.h"
#include "compiler/ops/attention.h"
#include "compiler/ops/families.h"
#include "compiler/ops/rope.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

namespace {

// The order of inputs: q, k and v, the caches, the cosines and sines (if `tables`) or the
// frequencies (if `frequencies`), then the norms.
constexpr int kNewRows = 3, kCaches = 2, kTables = 2;
size_t at(int input) { return static_cast<size_t>(input); }

template <class Context>
int tables_of(const Context& c) {
  return c.flag("tables", false) ? kTables : 0;
}
template <class Context>
int first_norm_of(const Context& c) {
  return kNewRows + kCaches + tables_of(c) + (c.flag("frequencies", false) ? 1 : 0);
}

// The tables must be as rope takes them, for rows with these positions.
void check_tables(InferContext& c, const ir::Expr& rows, int64_t rotary_dim) {
  const Type cosines = c.in(kNewRows + kCaches), sines = c.in(kNewRows + kCaches + 1);
  const ir::Expr position = c.expr("position").value_or(ir::Expr(-1));
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  const auto wide = [&](int64_t columns) {
    return cosines.shape.size() == 2 && cosines.shape[1] == ir::Expr(columns);
  };
  if (cosines.dtype != sines.dtype || cosines.shape != sines.shape ||
      !ir::is_float(cosines.dtype) || !(wide(rotary_dim) || wide(rotary_dim / 2))) {
    c.error(
        "'attention_step' needs cosines and sines of one type and shape, of a column for each "
        "element or pair of a head that turns");
    return;
  }
  const auto first = ir::bounds(ir::canonical(position), range),
             spare = ir::bounds(ir::canonical(cosines.shape[0] - position - rows), range);
  if (!first || first->lo < 0 || !spare || spare->lo < 0)
    c.error_attr("position", fmt::format("'position' of 'attention_step' is {}, for which its "
                                         "cosines have no rows",
                                         position.str()));
}

void infer(InferContext& c) {
  const int64_t d = c.integer("head_dim", 0), heads = c.integer("heads", 0);
  const int norms = (c.has("q_eps") ? 1 : 0) + (c.has("k_eps") ? 1 : 0);
  const int first_norm = first_norm_of(c), given = kNewRows + kCaches;
  if (c.failed()) return;
  if (c.inputs() != first_norm + norms || first_norm - given > kTables) {
    c.error(fmt::format("'attention_step' with {} norms{}{} takes {} inputs, not {}", norms,
                        tables_of(c) > 0 ? " and tables" : "",
                        c.flag("frequencies", false) ? " and frequencies" : "", first_norm + norms,
                        c.inputs()));
    return;
  }
  const Type q = c.in(0), cache = c.in(kNewRows);
  for (int i = 0; i < kNewRows + kCaches; ++i)
    if (c.in(i).shape.size() != 2 || !c.extent(i, 1).is_constant()) {
      c.error_in(i, fmt::format("'attention_step' needs 2 axes, but has {}",
                                describe(c.graph(), c.op().in[static_cast<size_t>(i)])));
      return;
    }
  for (int i = 1; i < c.inputs(); ++i)
    if ((i < kNewRows + kCaches && c.in(i).dtype != q.dtype) ||
        (i >= first_norm &&
         (!ir::is_float(c.in(i).dtype) || c.in(i).dtype != c.in(first_norm).dtype)))
      c.error_in(i, "'attention_step' has inputs of several types");
  const int64_t width = *cache.shape[1].constant();
  if (d < 8 || d % 8 != 0 || d > functions::kMostHeadDim || heads < 1 || width % d != 0 ||
      heads % (width / d) != 0 || c.in(kNewRows + 1).shape != cache.shape) {
    c.error(fmt::format("'attention_step' can't have {} heads of {} over caches of {}", heads, d,
                        to_string(cache.shape)));
    return;
  }
  for (int i = 0; i < kNewRows; ++i) {
    const int64_t begin = c.integer(i == 0 ? "q_begin" : i == 1 ? "k_begin" : "v_begin", 0);
    const int64_t wanted = i == 0 ? heads * d : width;
    const bool stored = i > 0 && c.flag("stored", false);
    if (stored ? c.op().in[at(i)] != c.op().in[at(kNewRows - 1 + i)] || begin != 0
               : begin < 0 || begin + wanted > *c.extent(i, 1).constant() ||
                     c.in(i).shape[0] != q.shape[0])
      c.error_in(i, fmt::format("'attention_step' takes columns {} to {} of as many rows as '{}' "
                                "has, not {}",
                                begin, begin + wanted, c.graph()[c.op().in[0]].name,
                                describe(c.graph(), c.op().in[static_cast<size_t>(i)])));
  }
  const int64_t turned = check_rotary(c, d);
  if (tables_of(c) > 0) check_tables(c, q.shape[0], turned);
  if (c.flag("frequencies", false)) check_frequencies(c, given, turned / 2);
  for (int i = first_norm; i < c.inputs(); ++i)
    if (c.in(i).shape != ir::Shape{ir::Expr(d)})
      c.error_in(i, fmt::format("'attention_step' needs norms of [{}]", d));
  check_window_and_cap(c, d);
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  if (const auto rows = ir::bounds(q.shape[0], range); !rows || rows->hi > functions::kStepRows)
    c.error_in(0, fmt::format("'attention_step' takes up to {} rows", functions::kStepRows));
  const ir::Expr length = c.expr("length").value_or(cache.shape[0]);
  const auto old = ir::bounds(ir::canonical(length - q.shape[0]), range),
             spare = ir::bounds(ir::canonical(cache.shape[0] - length), range);
  if (!old || old->lo < 0 || !spare || spare->lo < 0)
    c.error_attr("length", fmt::format("'length' of 'attention_step' is {}, which doesn't lie "
                                       "between its rows and those of its caches",
                                       length.str()));
  if (c.failed()) return;
  c.set_out(0, c.out_dtype(0, q.dtype), {q.shape[0], ir::Expr(heads * d)});
  for (int i = 1; i < kNewRows; ++i) c.set_out(i, q.dtype, {q.shape[0], cache.shape[1]});
}

struct Heads {
  int64_t dim = 1, all = 1, shared = 1;  // shared: heads that share their keys
  int64_t at_once = 1, rows = 1;         // heads and rows of a task
};
Heads heads_of(const TileContext& c) {
  Heads h;
  h.dim = c.integer("head_dim", 1);
  h.all = c.integer("heads", 1);
  h.shared = c.in(kNewRows).cols / h.dim;
  const int64_t group = h.all / h.shared;
  const int64_t most = functions::step_rows(h.dim);
  h.at_once = std::min(group, most);
  while (group % h.at_once != 0) --h.at_once;
  h.rows = std::min(c.in(0).max_rows, most / h.at_once);
  return h;
}
int64_t window_of(const TileContext& c) {
  return functions::window_over(c.in(kNewRows).max_rows, c.integer("window", 0));
}
int64_t tasks_of(const TileContext& c, const Heads& h) {
  return tiles_of(c.in(0).max_rows, h.rows) * (h.all / h.at_once);
}

// How many heads that share keys a merging task takes: so many that each of its warps waits for one
// run of at most 32 elements.
int64_t heads_merged(const Heads& h) {
  constexpr int64_t kWarps = 8, kLanes = 32;
  const int64_t group = h.all / h.shared, runs = tiles_of(h.dim, kLanes);
  int64_t heads = std::clamp<int64_t>(kWarps / runs, 1, group);
  while (group % heads != 0) --heads;
  return heads;
}

constexpr int64_t kMostSplits = 64;  // a thread keeps the results of all splits

// Tasks of this step and of the steps with as many steps before them. They run at the same time, as
// the steps of several sequences do, and share the SMs.
int64_t tasks_beside(const TileContext& c) {
  const ir::Graph& graph = c.graph();
  std::vector<int64_t> in_front(graph.tensors.size(), 0);  // by tensor: steps before its reader
  std::map<std::string_view, int64_t> behind;              // by awaited op: likewise
  for (const ir::Op& op : graph.ops)
    for (const std::string& name : op.after) behind[name] = 0;
  std::vector<std::pair<int64_t, ir::OpId>> steps;
  int64_t own = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    int64_t count = 0;
    for (const ir::TensorId t : op.in) count = std::max(count, in_front[index(t)]);
    for (const std::string& name : op.after) count = std::max(count, behind[name]);
    if (i == index(c.id())) own = count;
    if (op.kind == c.op().kind) steps.emplace_back(count++, ir::id_of<ir::OpId>(i));
    for (const ir::TensorId t : op.out) in_front[index(t)] = count;
    if (const auto named = behind.find(op.name); named != behind.end()) named->second = count;
  }
  int64_t tasks = 0;
  TileContext context(c);
  for (const auto& [count, op] : steps) {
    if (count != own) continue;
    const TileContext step = context.beside(op);
    tasks += tasks_of(step, heads_of(step));
  }
  return tasks;
}

// Splits only cost a hand-off, as long as each has an SM.
Cut choose(const TileContext& c) {
  const Heads h = heads_of(c);
  const int64_t tasks = tasks_beside(c);
  const int64_t keys = functions::keys_in_window(
      c.typical(c.expr("length").value_or(c.in(kNewRows).rows)) - c.typical(c.in(0).rows),
      window_of(c));
  int64_t best = 1;
  double least = 0;
  for (int64_t splits = 1;
       splits == 1 || (splits <= kMostSplits && tasks * splits <= c.machine().sms); splits *= 2) {
    const cost::Work work =
        functions::step_work({.head_dim = h.dim,
                              .keys = keys,
                              .splits = splits,
                              .element_bytes = ir::size_of(c.in(0).dtype),
                              .page_keys = functions::step_keys(c.machine().page_bytes)},
                             c.machine());
    const double time = cost::microseconds(work, c.machine()) +
                        (splits > 1 ? c.machine().packet_hand_over.value : 0);
    if (splits > 1 && time >= least) continue;
    least = time;
    best = splits;
  }
  return {.tile = {best}};
}
std::string refuse_cut(const TileContext&, const Cut& cut) {
  if (cut.tile[0] <= kMostSplits) return "";
  return fmt::format("{} splits; at most {} are possible", cut.tile[0], kMostSplits);
}

void tile(TileContext& c) {
  const Mat q = c.in(0), k = c.in(1), v = c.in(2), keys = c.in(3), values = c.in(4), y = c.out(0),
            new_k = c.out(1), new_v = c.out(2);
  const Heads h = heads_of(c);
  const int64_t splits = c.cut().tile[0], d = h.dim, group = h.all / h.shared;
  const ir::Expr length = c.expr("length").value_or(keys.rows);
  const int64_t q_begin = c.integer("q_begin", 0), k_begin = c.integer("k_begin", 0),
                v_begin = c.integer("v_begin", 0), part = d + 2;
  const int64_t window = window_of(c);
  const bool turned = c.has("position"), tabled = tables_of(c) > 0,
             by_radians = c.flag("frequencies", false);
  const Mat table = c.in(tabled ? kNewRows + kCaches : 0);
  const int first_norm = first_norm_of(c);
  const bool normed = c.has("q_eps") || c.has("k_eps");
  const int64_t rotary = rotary_dim(c.graph(), c.op());
  const ir::Table turns =
      turned && !tabled && !by_radians ? rope_turns(c.op(), rotary) : ir::Table{{0}};
  c.program().uses.scratch_bytes =
      std::max(c.program().uses.scratch_bytes, functions::step_scratch(d));
  ir::BufferId found = y.buffer;
  if (splits > 1)
    found = c.rows_buffer("parts", ir::DType::F32, q.rows, q.max_rows, splits * h.all * part);
  std::vector<ir::BufferId> operands = {q.buffer,      k.buffer, v.buffer,     keys.buffer,
                                        values.buffer, found,    new_k.buffer, new_v.buffer};
  for (int i = kNewRows + kCaches; i < static_cast<int>(c.op().in.size()); ++i)
    operands.push_back(c.in(i).buffer);
  // Boxes bring whole pages, whose rows every launch must have.
  const auto page_box = functions::step_box(d, keys.cols, c.machine().page_bytes);
  const bool boxes = c.machine().has_boxes() && !keys.dynamic();
  // Two pages at a time, where the ring has room for these and one more.
  const int64_t pages = c.machine().pages > 4 ? 2 : 1;
  std::vector<ir::Load> loads;
  for (uint32_t operand : {3u, 4u})
    loads.push_back({.operand = operand,
                     .pages = pages,
                     .page_bytes = c.machine().page_bytes,
                     .box = boxes ? std::optional(page_box) : std::nullopt,
                     .ahead = true});
  const ir::CallId call =
      c.call("attention_step",
             {{"X", q.dtype},
              {"Y", splits > 1 ? ir::DType::F32 : y.dtype},
              {"T", table.dtype},
              {"N", normed ? c.in(first_norm).dtype : q.dtype},
              c.value("rows", q.rows),
              c.value("length", length),
              c.value("position", c.expr("position").value_or(ir::Expr(0))),
              {"HQ", h.all},
              {"HKV", h.shared},
              {"D", d},
              {"R", rotary},
              {"HB", h.at_once},
              {"BT", h.rows},
              {"splits", splits},
              {"pages", pages},
              {"q_cols", q.cols},
              {"k_cols", k.cols},
              {"v_cols", v.cols},
              {"q_begin", q_begin},
              {"k_begin", k_begin},
              {"v_begin", v_begin},
              {"causal", c.flag("causal", false)},
              {"table_cols", tabled ? table.cols : 0},
              {"turned", turned},
              {"tabled", tabled},
              {"by_radians", by_radians},
              {"interleaved", c.flag("interleaved", false)},
              {"q_normed", c.has("q_eps")},
              {"k_normed", c.has("k_eps")},
              {"boxes", boxes},
              {"stored", c.flag("stored", false)},
              {"scale", c.number("scale", 1 / std::sqrt(static_cast<double>(d)))},
              {"softcap", c.number("softcap", 0)},
              {"window", window},
              {"q_eps", c.number("q_eps", 0)},
              {"k_eps", c.number("k_eps", 0)},
              {"factor", c.number("attention_factor", 1)},
              {"turns", turns}},
             std::move(operands), std::move(loads));

  const auto parts = [&](int64_t split, int64_t r0, int64_t r1, int64_t h0, int64_t h1) {
    ir::Region r;
    r.buffer = found;
    r.pitch = splits * h.all * part;
    r.r0 = r0, r.r1 = std::min(r1, q.max_rows);
    r.c0 = (split * h.all + h0) * part, r.c1 = (split * h.all + h1) * part;
    return r;
  };
  const int64_t merged = heads_merged(h), merges = splits > 1 ? q.max_rows * (h.all / merged) : 0;
  c.announce_all(tasks_of(c, h) * splits + merges);
  // A box also brings rows behind those that count.
  const ir::Interval before = c.range(ir::canonical(length - q.rows));
  const int64_t old = boxes ? keys.max_rows : std::max<int64_t>(before.hi, 1);
  const int64_t first = window > 0 ? std::clamp<int64_t>(before.lo + 1 - window, 0, old - 1) : 0;
  uint32_t index = 0;
  for (int64_t r = 0; r < q.max_rows; r += h.rows)
    for (int64_t head = 0; head < h.all; head += h.at_once)
      for (int64_t split = 0; split < splits; ++split, ++index) {
        const int64_t kv = head / group * d, r1 = r + h.rows, h1 = head + h.at_once;
        std::vector<ir::Access> accesses = {
            read(box(q, r, r1, q_begin + head * d, q_begin + h1 * d))};
        if (split == 0) {
          accesses.push_back(read(box(k, 0, k.max_rows, k_begin + kv, k_begin + kv + d)));
          accesses.push_back(read(box(v, 0, v.max_rows, v_begin + kv, v_begin + kv + d)));
        }
        accesses.push_back(read(box(keys, first, old, kv, kv + d)));
        accesses.push_back(read(box(values, first, old, kv, kv + d)));
        for (int i = kNewRows + kCaches; i < static_cast<int>(c.op().in.size()); ++i)
          accesses.push_back(read(whole(c.in(i))));
        accesses.push_back(
            write(splits > 1 ? parts(split, r, r1, head, h1) : box(y, r, r1, head * d, h1 * d)));
        if (split == 0 && r == 0 && head % group == 0) {
          accesses.push_back(write(box(new_k, 0, new_k.max_rows, kv, kv + d)));
          accesses.push_back(write(box(new_v, 0, new_v.max_rows, kv, kv + d)));
        }
        c.task(call, index, std::move(accesses));
      }
  if (splits == 1) return;
  const ir::CallId merge = c.call("attention_merge",
                                  {{"Y", y.dtype},
                                   c.value("rows", q.rows),
                                   {"HQ", h.all},
                                   {"HB", merged},
                                   {"D", d},
                                   {"splits", splits}},
                                  {found, y.buffer});
  uint32_t next = 0;
  for (int64_t r = 0; r < q.max_rows; ++r)
    for (int64_t head = 0; head < h.all; head += merged) {
      std::vector<ir::Access> accesses;
      for (int64_t split = 0; split < splits; ++split)
        accesses.push_back(read(parts(split, r, r + 1, head, head + merged)));
      accesses.push_back(write(box(y, r, r + 1, head * d, (head + merged) * d)));
      c.task(merge, next++, std::move(accesses));
    }
}

}  // namespace

std::vector<OpDef> attention_step_ops() {
  OpDef d;
  d.kind = "attention_step";
  d.summary = "attention of new rows over a cache and themselves, made of other ops";
  d.internal = true;
  d.dtype_of_first = true;
  d.min_in = kNewRows + kCaches;
  d.max_in = kNewRows + kCaches + kTables + 2;
  d.min_out = d.max_out = 3;
  d.attrs = {{"head_dim", AttrType::Int, true, "", {}, false},
             {"heads", AttrType::Int, true, "", {}, false},
             {"causal", AttrType::Bool, false, "false", {}, false},
             {"scale", AttrType::Number, false, "1/sqrt(head_dim)", {}, false},
             {"stored", AttrType::Bool, false, "false", {}, false},
             {"tables", AttrType::Bool, false, "false", {}, false},
             {"frequencies", AttrType::Bool, false, "false", {}, false},
             {"length", AttrType::RuntimeInt, false, "rows of the caches", {}, false},
             {"window", AttrType::Int, false, "", {}, false},
             {"softcap", AttrType::Number, false, "", {}, false},
             {"position", AttrType::RuntimeInt, false, "", {}, false},
             {"theta", AttrType::Number, false, "10000", {}, false},
             {"interleaved", AttrType::Bool, false, "false", {}, false},
             {"scaling", AttrType::Scaling, false, "", {}, false},
             {"rotary_dim", AttrType::Int, false, "head_dim", {}, false},
             {"attention_factor", AttrType::Number, false, "1", {}, false},
             {"q_begin", AttrType::Int, false, "0", {}, false},
             {"k_begin", AttrType::Int, false, "0", {}, false},
             {"v_begin", AttrType::Int, false, "0", {}, false},
             {"q_eps", AttrType::Number, false, "", {}, false},
             {"k_eps", AttrType::Number, false, "", {}, false}};
  d.infer = infer;
  d.tile_axes = {"splits"};
  d.choose = choose;
  d.refuse_cut = refuse_cut;
  d.tile = tile;
  return {d};
}

}  // namespace maco::ops
