// cuda: a kernel of the user's. Its blocks become tasks; if the grid has many blocks, a task has
// several.
#include "ir/cuda_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/functions/cuda_kernel.h"
#include "compiler/ops/families.h"
#include "compiler/ops/other_names.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

namespace {

using ir::AttrTree;
using ir::Expr;

/// The type that `types` gives a tensor.
std::optional<Type> read_type(InferContext& c, const std::string& name, const AttrTree& t) {
  const auto* map = std::get_if<AttrTree::Map>(&t.value);
  if (!map) {
    c.error_at(t.loc,
               fmt::format("'types' of 'cuda' must give '{}' a map with dtype and shape", name));
    return std::nullopt;
  }
  const std::vector<std::string> keys = {"dtype", "shape"};
  for (const AttrTree::Entry& e : *map)
    if (std::find(keys.begin(), keys.end(), e.key) == keys.end()) {
      c.error_at(e.key_loc, fmt::format("unknown key '{}' in 'types' of 'cuda'{}", e.key,
                                        did_you_mean(e.key, keys)));
      return std::nullopt;
    }
  const AttrTree *dtype = t.find("dtype"), *shape = t.find("shape");
  const auto* extents = shape ? std::get_if<AttrTree::List>(&shape->value) : nullptr;
  if (!dtype || !extents) {
    c.error_at(t.loc, fmt::format("'types' of 'cuda' gives '{}' no {}", name,
                                  !dtype ? "'dtype'" : "'shape', a list of extents"));
    return std::nullopt;
  }
  const auto type = ir::dtype_from_name(dtype->text());
  if (!type) {
    std::vector<std::string> names;
    for (const ir::DType d : ir::kAllDTypes) names.emplace_back(ir::name(d));
    c.error_at(dtype->loc, fmt::format("'{}' is no dtype{}", dtype->text(),
                                       did_you_mean(dtype->text(), names)));
    return std::nullopt;
  }
  Type result{*type, {}};
  for (const AttrTree& extent : *extents) {
    const Expr* e = std::get_if<Expr>(&extent.value);
    bool good = e != nullptr;
    if (good)
      for (const std::string& v : e->vars())
        good = good && (v == "world" || c.graph().find_dim(v) != nullptr);
    if (!good) {
      c.error_at(extent.loc,
                 fmt::format("an extent of '{}' in 'types' of 'cuda' must be an integer "
                             "or an expression over dims and world",
                             name));
      return std::nullopt;
    }
    result.shape.push_back(ir::substitute(*e, [&](std::string_view n) -> std::optional<int64_t> {
      if (n == "world") return c.graph().world;
      return std::nullopt;
    }));
  }
  return result;
}

void infer_cuda(InferContext& c) {
  const ir::Op& op = c.op();
  const AttrTree* types = nullptr;
  if (const auto found = op.attrs.find("types"); found != op.attrs.end())
    types = std::get_if<AttrTree>(&found->second.value);
  if (const auto* map = types ? std::get_if<AttrTree::Map>(&types->value) : nullptr) {
    std::vector<std::string> outputs;
    for (const ir::TensorId id : op.out) outputs.push_back(c.graph()[id].name);
    for (const AttrTree::Entry& e : *map)
      if (std::none_of(op.out.begin(), op.out.end(),
                       [&](ir::TensorId id) { return c.graph()[id].name == e.key; }))
        c.error_at(e.key_loc,
                   fmt::format("'types' of 'cuda' names '{}', which is no output of the op{}",
                               e.key, ir::did_you_mean(e.key, outputs)));
  } else if (types) {
    c.error_at(types->loc, "'types' of 'cuda' must be a map from outputs to their types");
  }
  if (c.has("unit") != c.has("static_shared"))
    c.error("'unit' and 'static_shared' of 'cuda' are what the compiler read: both or none");
  else if (c.has("unit") && !c.graph().find_cuda_unit(c.word("unit", "")))
    c.error_attr("unit",
                 fmt::format("the graph has no unit '{}' among 'cuda_units'", c.word("unit", "")));
  if (op.dtype)
    c.error("'cuda' takes no 'dtype': what the kernel writes has the types that 'types' says");
  if (c.failed()) return;
  for (size_t i = 0; i < op.out.size(); ++i) {
    const ir::Tensor& t = c.graph()[op.out[i]];
    const AttrTree* given = types ? types->find(t.name) : nullptr;
    if (given) {
      const auto type = read_type(c, t.name, *given);
      if (type) c.set_out(static_cast<int>(i), type->dtype, type->shape);
    } else if (t.shape.empty()) {
      c.error(
          fmt::format("'types' of 'cuda' doesn't say what '{}' is: its dtype and shape", t.name));
    }
    if (c.failed()) return;
  }
  ir::read_cuda_op(c.graph(), op,
                   [&](ir::Loc loc, const std::string& message) { c.error_at(loc, message); });
  if (c.failed()) return;
  // Checks regions against their tensors.
  const ir::CudaOp k = ir::cuda_op(c.graph(), op);
  for (const auto* regions : {&k.reads, &k.writes})
    for (const ir::CudaRegion& r : *regions) {
      const ir::Tensor& t = c.graph()[*c.graph().find_tensor(r.tensor)];
      if (r.ranges.size() > t.shape.size())
        c.error_at(r.loc,
                   fmt::format("'{}' has {} ax{}s, but its region has {} ranges", r.tensor,
                               t.shape.size(), t.shape.size() == 1 ? "i" : "e", r.ranges.size()));
    }
}

/// Elements [begin, end) of an axis; `exact` if they are the same in every launch and on every
/// rank.
struct Range {
  int64_t begin = 0, end = 0;
  bool exact = true;
};

class Tiler {
 public:
  explicit Tiler(const TileContext& c) : c_(c), k_(ir::cuda_op(c.graph(), c.op())) {
    for (size_t a = 0; a < 3; ++a) grid_[a] = c.range(k_.grid[a]).hi;
    for (size_t a = 0; a < 3; ++a) fixed_ = fixed_ && k_.grid[a].is_constant();
  }

  int64_t blocks() const { return grid_[0] * grid_[1] * grid_[2]; }
  const ir::CudaOp& kernel() const { return k_; }

  /// Whether every tensor that is written has a region, so that blocks may run side by side.
  bool divided() const {
    return std::all_of(c_.op().out.begin(), c_.op().out.end(), [&](ir::TensorId id) {
      const std::string& name = c_.graph()[id].name;
      return ir::CudaOp::find(k_.writes, name) && (!reads(id) || ir::CudaOp::find(k_.reads, name));
    });
  }

  /// The accesses of blocks [first, first + count).
  std::vector<ir::Access> accesses(int64_t first, int64_t count) const {
    std::vector<ir::Access> list;
    for (const bool writing : {false, true})
      for (const ir::TensorId id : writing ? c_.op().out : c_.op().in)
        add(list, id, writing, first, count);
    return list;
  }

 private:
  bool reads(ir::TensorId id) const {
    return std::find(c_.op().in.begin(), c_.op().in.end(), id) != c_.op().in.end();
  }

  void add(std::vector<ir::Access>& list, ir::TensorId id, bool writing, int64_t first,
           int64_t count) const {
    const Mat m = c_.mat(id);
    const ir::Shape& shape = c_.shape(id);
    const ir::CudaRegion* region =
        ir::CudaOp::find(writing ? k_.writes : k_.reads, c_.graph()[id].name);
    // A state, and a tensor that is updated in place, keep what the kernel doesn't write.
    const bool all = writing && !reads(id) && c_.graph()[id].kind != ir::TensorKind::State;
    const size_t begin = list.size();
    const auto push = [&](const ir::Region& r, bool exact) {
      if (r.r0 >= r.r1 || r.c0 >= r.c1) return;
      const ir::AccessKind kind = !writing       ? ir::AccessKind::Read
                                  : all && exact ? ir::AccessKind::Write
                                                 : ir::AccessKind::MayWrite;
      if (list.size() > begin && list.back().kind == kind && join(list.back().region, r)) return;
      list.push_back({kind, r});
    };
    if (!region) {
      push(whole(m), true);
      return;
    }
    // A block that some launch doesn't have leaves its part unwritten; where dims cut the rows,
    // that part is beyond them.
    const bool there = fixed_ || m.dynamic();
    for (int64_t b = first; b < first + count; ++b) {
      const int64_t at[3] = {b % grid_[0], b / grid_[0] % grid_[1], b / grid_[0] / grid_[1]};
      bool exact = there;
      std::vector<Range> ranges;
      for (size_t a = 0; a < region->ranges.size(); ++a) {
        const int64_t extent = c_.range(shape[a]).hi;
        Range r = range(region->ranges[a], at, extent);
        exact = exact && r.exact;
        ranges.push_back(r);
      }
      push_box(m, shape, ranges, exact, push);
    }
  }

  template <class Push>
  void push_box(const Mat& m, const ir::Shape& shape, const std::vector<Range>& ranges, bool exact,
                const Push& push) const {
    std::vector<int64_t> extents;
    for (const Expr& e : shape) extents.push_back(c_.range(e).hi);
    size_t n = ranges.size();
    while (n > 0 && ranges[n - 1].begin == 0 && ranges[n - 1].end == extents[n - 1]) --n;
    if (n == 0) return push(whole(m), exact);
    for (size_t a = 0; a < n; ++a)
      if (ranges[a].begin >= ranges[a].end) return;
    if (shape.size() == 1) {
      if (m.dynamic()) return push(box(m, ranges[0].begin, ranges[0].end, 0, 1), exact);
      return push(flat(m, ranges[0].begin, ranges[0].end), exact);
    }
    int64_t inner = 1;  // elements of the whole axes behind the last range
    for (size_t a = n; a < extents.size(); ++a) inner *= extents[a];
    const Range& last = ranges[n - 1];
    if (n == 1) {
      const int64_t rows = inner / m.cols;
      return push(box(m, last.begin * rows, last.end * rows, 0, m.cols), exact);
    }
    // Rows of the last axis with a range, for each index of the axes before.
    const int64_t pitch = extents[n - 1] * inner;
    std::vector<int64_t> index(n - 1);
    for (size_t a = 0; a + 1 < n; ++a) index[a] = ranges[a].begin;
    for (;;) {
      int64_t row = 0;
      for (size_t a = 0; a + 1 < n; ++a) row = row * extents[a] + index[a];
      // The axis before the last is a run of rows.
      const int64_t run = ranges[n - 2].end - ranges[n - 2].begin;
      push(ir::Region{.buffer = m.buffer,
                      .pitch = pitch,
                      .r0 = row,
                      .r1 = row + run,
                      .c0 = last.begin * inner,
                      .c1 = last.end * inner,
                      .block = {},
                      .where = {}},
           exact);
      size_t a = n - 2;
      while (a > 0 && ++index[a - 1] == ranges[a - 1].end) index[a - 1] = ranges[a - 1].begin, --a;
      if (a == 0) return;
    }
  }

  /// Appends `next` to `region` if both together are one region.
  static bool join(ir::Region& region, const ir::Region& next) {
    if (region.buffer != next.buffer || region.pitch != next.pitch) return false;
    const bool rows = region.r0 == next.r0 && region.r1 == next.r1,
               cols = region.c0 == next.c0 && region.c1 == next.c1;
    if (rows && next.c0 >= region.c0 && next.c0 <= region.c1) {
      region.c1 = std::max(region.c1, next.c1);
      return true;
    }
    if (cols && next.r0 >= region.r0 && next.r0 <= region.r1) {
      region.r1 = std::max(region.r1, next.r1);
      return true;
    }
    return false;
  }

  Range range(const ir::CudaRange& r, const int64_t (&at)[3], int64_t extent) const {
    const auto placed = [&](const Expr& e) {
      return ir::canonical(ir::substitute(e, [&](std::string_view n) -> std::optional<int64_t> {
        if (n == "bx") return at[0];
        if (n == "by") return at[1];
        if (n == "bz") return at[2];
        return std::nullopt;
      }));
    };
    const auto interval = [&](const Expr& e) {
      const auto i = ir::bounds(e, [&](std::string_view n) { return c_.graph().range_of(n); });
      return i ? *i : ir::Interval{0, extent};
    };
    const Expr begin = placed(r.begin), end = placed(r.end);
    const ir::Interval from = interval(begin), to = interval(end);
    return {std::clamp<int64_t>(from.lo, 0, extent), std::clamp<int64_t>(to.hi, 0, extent),
            begin.is_constant() && end.is_constant()};
  }

  const TileContext& c_;
  const ir::CudaOp k_;
  int64_t grid_[3] = {1, 1, 1};
  bool fixed_ = true;
};

int64_t static_shared(const TileContext& c) { return c.integer("static_shared", 0); }

/// Bytes of scratch memory for `slots` blocks at once.
int64_t slot_bytes(const TileContext& c, const ir::CudaOp& k) {
  return functions::cuda_slot_bytes(static_shared(c), k.shared);
}

/// How many blocks run side by side on an SM.
int64_t slots_of(const TileContext& c, const ir::CudaOp& k, int64_t blocks) {
  const ir::Resources& uses = c.program().uses;
  const int64_t warps = (k.threads() + 31) / 32, bytes = slot_bytes(c, k);
  const int64_t room = uses.scratch_bytes / bytes;
  return std::clamp<int64_t>(std::min(uses.consumers / 32 / warps, room), 1,
                             std::max<int64_t>(blocks, 1));
}

/// Whether blocks of different tasks touch what one of them writes.
bool conflict(const std::vector<std::vector<ir::Access>>& tasks) {
  struct Span {
    int64_t begin, end;  // elements
    size_t task;
    const ir::Access* access;
  };
  std::vector<Span> spans;
  std::vector<ir::BufferId> written;
  for (const auto& task : tasks)
    for (const ir::Access& a : task)
      if (a.writes() && std::find(written.begin(), written.end(), a.region.buffer) == written.end())
        written.push_back(a.region.buffer);
  for (const ir::BufferId buffer : written) {
    spans.clear();
    for (size_t t = 0; t < tasks.size(); ++t)
      for (const ir::Access& a : tasks[t])
        if (a.region.buffer == buffer)
          spans.push_back({a.region.r0 * a.region.pitch + a.region.c0,
                           (a.region.r1 - 1) * a.region.pitch + a.region.c1, t, &a});
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < spans.size(); ++i)
      for (size_t j = i + 1; j < spans.size() && spans[j].begin < spans[i].end; ++j) {
        const ir::Region &a = spans[i].access->region, &b = spans[j].access->region;
        if (spans[i].task == spans[j].task) continue;
        if (!spans[i].access->writes() && !spans[j].access->writes()) continue;
        if (a.pitch != b.pitch || (a.r0 < b.r1 && b.r0 < a.r1 && a.c0 < b.c1 && b.c0 < a.c1))
          return true;
      }
  }
  return false;
}

std::vector<std::vector<ir::Access>> cut(const Tiler& tiler, int64_t each) {
  std::vector<std::vector<ir::Access>> tasks;
  for (int64_t b = 0; b < tiler.blocks(); b += each)
    tasks.push_back(tiler.accesses(b, std::min(each, tiler.blocks() - b)));
  return tasks;
}

Cut choose_cuda(const TileContext& c) {
  const Tiler tiler(c);
  const int64_t blocks = tiler.blocks();
  if (!tiler.divided()) return {.tile = {blocks}};
  constexpr int64_t rounds = 4, most_checked = 1 << 14;
  const int64_t sms = std::max<int64_t>(c.machine().sms, 1),
                slots = slots_of(c, tiler.kernel(), blocks);
  // As many blocks at once as there is room for, and a few tasks for each SM.
  int64_t each = std::max(std::min(slots, (blocks + sms - 1) / sms), blocks / (sms * rounds));
  each = std::clamp<int64_t>(each, 1, blocks);
  if (tiles_of(blocks, each) > most_checked) each = tiles_of(blocks, most_checked);
  if (conflict(cut(tiler, each))) each = blocks;
  return {.tile = {each}};
}

std::string refuse_cuda(const TileContext& c, const Cut& chosen) {
  const Tiler tiler(c);
  const int64_t each = chosen.tile[0];
  if (each >= tiler.blocks()) return "";
  if (!tiler.divided() || conflict(cut(tiler, each)))
    return "blocks of different tasks would touch what others write; one task has to run all";
  return "";
}

/// Checks that the blocks together write all of what has no value before.
void check_written(TileContext& c, const ir::CudaOp& k,
                   const std::map<ir::BufferId, int64_t>& written) {
  for (const ir::TensorId id : c.op().out) {
    const ir::CudaRegion* region = ir::CudaOp::find(k.writes, c.graph()[id].name);
    if (!region || c.graph()[id].kind == ir::TensorKind::State) continue;
    const Mat m = c.mat(id);
    const auto found = written.find(m.buffer);
    const int64_t n = found == written.end() ? 0 : found->second;
    if (n < m.max_elements())
      c.error_at(region->loc,
                 fmt::format("the blocks together are sure to write {} of the {} elements of '{}': "
                             "the grid, or what 'writes' says of a block, is too small",
                             n, m.max_elements(), c.graph()[id].name));
  }
}

void tile_cuda(TileContext& c) {
  if (!c.has("unit")) {
    c.error("the kernel of 'cuda' has not been read");
    return;
  }
  Tiler tiler(c);
  const ir::CudaOp& k = tiler.kernel();
  ir::Resources& uses = c.program().uses;
  if (k.threads() > uses.consumers) {
    c.error(fmt::format("a block of 'cuda' has {} threads, but a worker of '{}' has {}",
                        k.threads(), c.machine().target, uses.consumers));
    return;
  }
  const int64_t bytes = slot_bytes(c, k), all = c.machine().users_shared_bytes(),
                own = uses.head_bytes + functions::cuda_slot_bytes(0, 0);
  if (bytes > all - uses.head_bytes) {
    const auto attr = c.op().attrs.find("shared");
    const int64_t fixed = static_shared(c), given = k.shared,
                  rounded =
                      functions::cuda_slot_bytes(fixed, given) - functions::cuda_slot_bytes(0, 0);
    std::string takes = fmt::format("{} bytes of shared memory", rounded);
    if (fixed != 0 && given != 0)
      takes += fmt::format(" ({} static and {} dynamic{})", fixed, given,
                           rounded == fixed + given ? "" : ", each rounded up");
    else if (rounded != fixed + given)
      takes += fmt::format(" ({}, rounded up)", fixed + given);
    c.error_at(attr == c.op().attrs.end() ? ir::Loc() : attr->second.loc,
               fmt::format("a block of 'cuda' takes {}, but a task on '{}' can have {}: of the {} "
                           "of an SM {} are the worker's own",
                           takes, c.machine().target, all - own, all, own));
    return;
  }
  uses.scratch_bytes = std::max(uses.scratch_bytes, bytes);
  const int64_t blocks = tiler.blocks(), each = std::min(c.cut().tile[0], blocks);
  std::vector<ir::Param> params = {{"unit", ir::Word{c.word("unit", "")}},
                                   c.value("grid_x", k.grid[0]),
                                   c.value("grid_y", k.grid[1]),
                                   c.value("grid_z", k.grid[2]),
                                   {"planned_x", c.range(k.grid[0]).hi},
                                   {"planned_y", c.range(k.grid[1]).hi},
                                   {"blocks", blocks},
                                   {"each", each},
                                   {"slots", slots_of(c, k, each)},
                                   {"slot_bytes", bytes}};
  std::vector<ir::BufferId> operands;
  int64_t numbers = 0;
  for (const ir::CudaArg& arg : k.args)
    if (const ir::TensorId* id = arg.tensor()) {
      operands.push_back(c.mat(*id).buffer);
    } else if (const Expr* e = std::get_if<Expr>(&arg.value);
               e && ir::is_wide_argument(c.graph(), *e)) {
      const Expr wide(int64_t{1} << 32), half(int64_t{1} << 31);
      params.push_back(
          c.value(fmt::format("arg{}", numbers++), Expr::binary(Expr::Kind::Div, *e, wide)));
      params.push_back(
          c.value(fmt::format("arg{}", numbers++), Expr::binary(Expr::Kind::Mod, *e, wide) - half));
    } else if (e) {
      params.push_back(c.value(fmt::format("arg{}", numbers++), *e));
    }
  const ir::CallId call = c.call("cuda_kernel", std::move(params), std::move(operands));
  c.announce_all(tiles_of(blocks, each));
  std::map<ir::BufferId, int64_t> written;
  for (int64_t b = 0; b < blocks; b += each) {
    std::vector<ir::Access> accesses = tiler.accesses(b, std::min(each, blocks - b));
    for (const ir::Access& a : accesses)
      if (a.kind == ir::AccessKind::Write)
        written[a.region.buffer] += (a.region.r1 - a.region.r0) * (a.region.c1 - a.region.c0);
    c.task(call, static_cast<uint32_t>(b / each), std::move(accesses));
  }
  check_written(c, k, written);
}

// Blocks that may all write the same can't run side by side.
std::string warn_of_whole(const ir::Graph& graph, const ir::Op& op) {
  const ir::CudaOp kernel = ir::cuda_op(graph, op);
  if (std::all_of(kernel.grid.begin(), kernel.grid.end(),
                  [](const Expr& e) { return e.constant() == 1; }))
    return "";
  for (const ir::TensorId id : op.out) {
    const std::string& name = graph[id].name;
    const bool updated = std::find(op.in.begin(), op.in.end(), id) != op.in.end();
    const bool no_writes = !ir::CudaOp::find(kernel.writes, name);
    if (!no_writes && !(updated && !ir::CudaOp::find(kernel.reads, name))) continue;
    return fmt::format(
        "the blocks of '{}' all run on one SM: '{}' doesn't say what each of them touches of '{}'",
        op.name, no_writes ? "writes" : "reads", name);
  }
  return "";
}

}  // namespace

std::vector<OpDef> cuda_ops() {
  OpDef d;
  d.kind = "cuda";
  d.summary = "a CUDA kernel of the user's";
  d.names_tensors = true;
  d.in_place = [](const ir::Op&, ir::TensorId) { return true; };
  d.warning = warn_of_whole;
  d.min_in = 0;
  d.max_in = -1;
  d.min_out = 1;
  d.max_out = -1;
  d.attrs = {{"source", AttrType::Word, true, "", {}, false},
             {"kernel", AttrType::Word, true, "", {}, false},
             {"options", AttrType::Word, false, "none", {}, false},
             {"template", AttrType::Tree, false, "[]", {}, false},
             {"grid", AttrType::Tree, true, "", {}, false},
             {"block", AttrType::Tree, true, "", {}, false},
             {"shared", AttrType::Int, false, "0", {}, false},
             {"args", AttrType::Tree, true, "", {}, false},
             {"types", AttrType::Tree, false, "the declared ones", {}, false},
             {"reads", AttrType::Tree, false, "whole tensors", {}, false},
             {"writes", AttrType::Tree, false, "whole tensors", {}, false},
             {"unit", AttrType::Word, false, "what the compiler read", {}, false},
             {"static_shared", AttrType::Int, false, "what the compiler read", {}, false}};
  d.infer = infer_cuda;
  d.tile_axes = {"blocks"};
  d.choose = choose_cuda;
  d.refuse_cut = refuse_cuda;
  d.tile = tile_cuda;
  return {d};
}

}  // namespace maco::ops
