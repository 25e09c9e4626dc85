// attention computes softmax(q k^T * scale) v for BQ rows of one head. attention_tile computes many
// rows of the heads that share keys, on tensor cores. attention_step computes a few new rows over a
// cache and over themselves; attention_merge merges the results of its splits.
#include "compiler/functions/attention.h"

#include <algorithm>

#include "compiler/functions/families.h"

namespace maco::functions {

namespace {

// The queries and scores of a block of keys for each warp, then the warps' partial results, of
// which a lane holds at most 16 bytes. The layout is that of ops/attention.cuh.
int64_t scratch_bytes(const CallView& c) {
  const int64_t warps = c.program().uses.consumers / 32;
  constexpr int64_t lanes = 32, float_bytes = 4, unit = 4;
  const int64_t queries = c.integer("BQ");
  return std::max((queries * c.integer("D") + warps * queries * kBlockKeys) * float_bytes,
                  (2 * warps * queries + warps * lanes * unit) * float_bytes);
}

// How many keys count in a typical launch for one of a task's rows.
int64_t keys_that_count(const CallView& c, int64_t rows) {
  const int64_t length = c.typical("length"), window = c.integer("window");
  return window > 0 ? std::min(length, window + rows - 1) : length;
}

// The work of a task that reads only those keys and values that count in a typical launch.
cost::Work work_of(const CallView& c, const ir::Task& task, int64_t task_rows,
                   const cost::Machine& machine) {
  cost::Work work = cost::streaming(c.program(), task, machine);
  const auto count = static_cast<double>(keys_that_count(c, task_rows));
  for (size_t i = 1; i + 1 < task.accesses.size(); ++i) {
    const ir::Region& r = task.accesses[i].region;
    const auto rows = static_cast<double>(cost::typical_rows(c.program(), r)),
               row = static_cast<double>((r.c1 - r.c0) * ir::size_of(c.program()[r.buffer].dtype));
    work.bytes -= std::max(rows - count, 0.0) * row;
  }
  return work;
}

cost::Work work(const CallView& c, const ir::Task& task, const cost::Machine& machine) {
  return work_of(c, task, c.integer("BQ"), machine);
}

// Each row of a task is multiplied by each key that counts, on tensor cores; then the score's
// exponential is computed.
cost::Work tile_work(const CallView& c, const ir::Task& task, const cost::Machine& machine) {
  cost::Work done = work_of(c, task, c.integer("BT"), machine);
  if (task.accesses.size() < 4 || cost::typical_rows(c.program(), task.accesses[0].region) == 0)
    return {.fixed_microseconds = 0.5};
  int64_t seen =
      std::min(c.typical("length"), cost::typical_rows(c.program(), task.accesses[1].region));
  // The keys that the task's last row sees in the typical launch.
  if (c.flag("causal")) {
    const int64_t behind = std::max<int64_t>(c.typical("rows") - task.accesses[0].region.r1, 0);
    seen = std::clamp<int64_t>(c.typical("length") - behind, 0, seen);
    seen = std::min(seen, keys_that_count(c, c.integer("BT")));
  }
  const auto keys = static_cast<double>(seen),
             rows = static_cast<double>(c.integer("HB") * c.integer("BT")),
             wide = static_cast<double>(c.integer("D"));
  // kReached: the share of the tensor cores' rate that wgmma reaches. On an H200 it is 0.38 with a
  // head_dim of 64 and 0.51 with 128 (docs/notebook/prompt.md). kWeighing and kCapping: operations
  // for each weight.
  constexpr double kReached = 0.4, kWeighing = 16, kCapping = 14;
  done.matrix_multiply_adds = 2 * rows * keys * wide / kReached;
  done.multiply_adds = (kWeighing + (c.number("softcap") > 0 ? kCapping : 0)) * rows * keys;
  // Tasks of other rows read the same keys, from a GPU's cache.
  if (machine.arch != 0) done.bytes /= 4;
  return done;
}

constexpr int64_t kGroup = 64;  // elements of a head that are in a line
int64_t groups(int64_t head_dim) { return (head_dim + kGroup - 1) / kGroup; }

// A page holds nothing of the next head.
ir::Load::Box box_of(int64_t head_dim, int64_t width, int64_t keys) {
  return {keys, kGroup, width, head_dim % kGroup == 0 ? 0 : head_dim};
}

using BoxOf = ir::Load::Box (*)(int64_t head_dim, int64_t width, int64_t page_bytes);
LoadRule head_loads(const CallView& c, BoxOf box, int64_t pages) {
  LoadRule rule{.pages = pages, .whole_pages = true};
  const int64_t d = c.integer("D");
  if (c.flag("boxes")) rule.box = box(d, c.integer("HKV") * d, c.program().uses.page_bytes);
  return rule;
}

cost::Work step_task(const CallView& c, const ir::Task&, const cost::Machine& machine) {
  return step_work(
      {.head_dim = c.integer("D"),
       .keys = keys_in_window(c.typical("length") - c.typical("rows"), c.integer("window")),
       .splits = c.integer("splits"),
       .element_bytes = ir::size_of(c.dtype("X")),
       .page_keys = step_keys(c.program().uses.page_bytes)},
      machine);
}

}  // namespace

int64_t step_keys(int64_t page_bytes) { return page_bytes / ir::Load::kLine; }

int64_t tile_keys(int64_t head_dim, int64_t page_bytes) {
  return page_bytes / ir::Load::kLine / groups(head_dim);
}

bool takes_head(int64_t head_dim, int64_t page_bytes) {
  constexpr int64_t kChunk = 8, kStep = 16;
  return head_dim % kChunk == 0 && head_dim <= kMostHeadDim &&
         page_bytes / ir::Load::kLine % groups(head_dim) == 0 &&
         tile_keys(head_dim, page_bytes) % kStep == 0;
}

// Rows of the queries, the new keys and the new values; then the warps' partial results. 512 keys
// of head_dim 64 took 5.3 us on an H200, and 1.8 us without the cache's keys. The code is long for
// few warps; its time happens to equal that of an SM's share of the memory bandwidth.
int64_t step_scratch(int64_t head_dim) {
  constexpr int64_t areas = 3, least = 16384;
  return std::max(areas * groups(head_dim) * kStepRows * ir::Load::kLine, least);
}

int64_t tile_scratch(int64_t head_dim, bool wgmma) {
  return kTileRows * ir::Load::kLine * (wgmma ? groups(head_dim) : 1);
}

ir::Load::Box step_box(int64_t head_dim, int64_t width, int64_t page_bytes) {
  return box_of(head_dim, width, step_keys(page_bytes));
}

ir::Load::Box tile_box(int64_t head_dim, int64_t width, int64_t page_bytes) {
  return box_of(head_dim, width, tile_keys(head_dim, page_bytes));
}

cost::Work step_work(const AttentionStep& s, const cost::Machine& machine) {
  const int64_t blocks = std::max<int64_t>((s.keys + s.page_keys - 1) / s.page_keys, 1);
  const int64_t own = (blocks + s.splits - 1) / s.splits * s.page_keys;
  // 512 keys of head_dim 64 took 5.3 us on an H200, 1.8 without the cache's keys: long code for few
  // warps, which happens to take as long as an SM's share of the memory's rate would.
  cost::Work work{.fixed_microseconds = machine.arch == 0 ? 1.5 : 1.8};
  work.bytes = static_cast<double>(2 * own * s.head_dim * s.element_bytes);
  return work;
}

std::vector<Function> attention_functions() {
  const Function step{
      .name = "attention_step",
      .params = {dtype("X"),          dtype("Y"),         dtype("T"),
                 dtype("N"),          value("rows"),      value("length"),
                 value("position"),   integer("HQ"),      integer("HKV"),
                 integer("D"),        integer("HB"),      integer("BT"),
                 integer("splits"),   integer("pages"),   integer("q_cols"),
                 integer("k_cols"),   integer("v_cols"),  integer("q_begin"),
                 integer("k_begin"),  integer("v_begin"), integer("table_cols"),
                 flag("causal"),      flag("turned"),     flag("tabled"),
                 flag("interleaved"), integer("R"),       number("factor"),
                 flag("by_radians"),  flag("stored"),     flag("q_normed"),
                 flag("k_normed"),    flag("boxes"),      number("scale"),
                 number("softcap"),   integer("window"),  number("q_eps"),
                 number("k_eps"),     table("turns")},
      .operands = {in_packets(reads("q", "X")), in_packets(reads("k", "X")),
                   in_packets(reads("v", "X")), loads("k_cache", "X"), loads("v_cache", "X"),
                   in_packets(writes("y", "Y")), writes("k_rows", "X"), writes("v_rows", "X"),
                   reads("more", "", Count::Many)},  // tables or frequencies; weights of norms
      .source = {{"rows.cuh", "tensor_cores.cuh", "ops/rope.cuh", "ops/attention_scores.cuh",
                  "ops/attention_pages.cuh", "ops/attention_step_shape.cuh",
                  "ops/attention_step_warp.cuh", "ops/attention_step_lone.cuh",
                  "ops/attention_step.cuh"}},
      .loads = [](const CallView& c,
                  size_t) { return head_loads(c, step_box, c.integer("pages")); },
      .takes_packets = [](const CallView& c,
                          size_t i) { return i == 0 || i == 5 || (i < 3 && !c.flag("stored")); },
      .scratch_bytes = [](const CallView& c) { return step_scratch(c.integer("D")); },
      .work = step_task};
  const Function merge{
      .name = "attention_merge",
      .params = {dtype("Y"), value("rows"), integer("HQ"), integer("HB"), integer("D"),
                 integer("splits")},
      .operands = {in_packets(reads("parts", "f32")), in_packets(writes("y", "Y"))},
      .source = {{"rows.cuh", "tensor_cores.cuh", "ops/rope.cuh", "ops/attention_scores.cuh",
                  "ops/attention_pages.cuh", "ops/attention_step_shape.cuh",
                  "ops/attention_merge.cuh"}},
      // A thread polls the packets of all splits at once.
      .takes_packets = [](const CallView& c, size_t i) {
        return i == 1 || c.integer("splits") <= 16;
      }};
  const Function tile{
      .name = "attention_tile",
      .params = {dtype("X"), dtype("Y"), value("rows"), value("length"), integer("q_cols"),
                 integer("q_begin"), integer("HQ"), integer("HKV"), integer("D"), integer("HB"),
                 integer("BT"), flag("causal"), flag("boxes"), flag("wgmma"), number("scale"),
                 number("softcap"), integer("window")},
      .operands = {reads("q", "X"), loads("k", "X"), loads("v", "X"), writes("y", "Y")},
      .source = {{"rows.cuh", "tensor_cores.cuh", "ops/attention_scores.cuh",
                  "ops/attention_pages.cuh", "ops/attention_tile_shape.cuh",
                  "ops/attention_tile_warp.cuh", "ops/attention_tile_group.cuh",
                  "ops/attention_tile_lone.cuh", "ops/attention_tile.cuh"}},
      .loads = [](const CallView& c, size_t) { return head_loads(c, tile_box, 1); },
      .many_registers = [](const CallView& c) { return c.flag("wgmma"); },
      .scratch_bytes =
          [](const CallView& c) { return tile_scratch(c.integer("D"), c.flag("wgmma")); },
      .work = tile_work};
  return {step,
          merge,
          tile,
          {.name = "attention",
           .params = {dtype("Q"), dtype("K"), dtype("V"), dtype("Y"), value("rows"),
                      value("length"), integer("q_cols"), integer("q_begin"), integer("HQ"),
                      integer("HKV"), integer("D"), integer("BQ"), flag("causal"), number("scale"),
                      number("softcap"), integer("window")},
           .operands = {reads("q", "Q"), reads("k", "K"), reads("v", "V"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/attention_scores.cuh", "ops/attention.cuh"}},
           .scratch_bytes = scratch_bytes,
           .work = work}};
}

}  // namespace maco::functions
