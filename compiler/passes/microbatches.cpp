#include "compiler/passes/microbatches.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string_view>

#include "compiler/functions/function.h"
#include "compiler/ops/attrs.h"
#include "compiler/passes/dependencies.h"
#include "ir/check.h"
#include "ir/ranks.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;

namespace {

constexpr int64_t kUnknown = -1;
constexpr int64_t kBehind = std::numeric_limits<int64_t>::max();

const ir::Tensor& rows_of(const ir::Graph& graph, const Op& op) {
  return graph[op.out.empty() ? op.in[0] : op.out[0]];
}
int64_t most(const ir::Graph& graph, const ir::Expr& e) {
  const auto range = ir::bounds(e, [&](std::string_view n) { return graph.range_of(n); });
  MACO_CHECK(range, e.str());
  return range->hi;
}
int64_t most_elements(const ir::Graph& graph, const ir::Shape& shape) {
  int64_t n = 1;
  for (const ir::Expr& e : shape) n *= most(graph, e);
  return n;
}
// Whether the op's rows are those of the stage. An op that passes put in a stage may have rows of
// something else.
bool has_own_rows(const Op& op) {
  const ops::OpDef& def = *ops::find_op(op.kind);
  return !def.internal || def.refuse_stage;
}
std::map<std::string_view, size_t> stages_of(const ir::Graph& graph) {
  std::map<std::string_view, size_t> stages;
  for (size_t s = 0; graph.pipeline && s < graph.pipeline->stages.size(); ++s)
    for (const std::string& name : graph.pipeline->stages[s]) stages.emplace(name, s);
  return stages;
}
std::vector<std::optional<size_t>> stages_by_op(const ir::Graph& graph) {
  const auto stages = stages_of(graph);
  std::vector<std::optional<size_t>> list(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (const auto it = stages.find(graph.ops[i].name); it != stages.end()) list[i] = it->second;
  return list;
}
// The inputs of which a microbatch of the result needs only one microbatch.
std::vector<TensorId> inputs_by_rows(const ir::Graph& graph, const Op& op) {
  std::vector<TensorId> list;
  const ops::OpDef& def = *ops::find_op(op.kind);
  for (size_t i = 0; i < op.in.size(); ++i) {
    std::vector<bool> cut(op.in.size(), false);
    cut[i] = true;
    // A tensor that is two inputs of the op is left out: the rule is asked for one at a time.
    if (def.refuse_stage && def.refuse_stage(graph, op, cut).empty() &&
        std::count(op.in.begin(), op.in.end(), op.in[i]) == 1)
      list.push_back(op.in[i]);
  }
  return list;
}

}  // namespace

Microbatches::Microbatches(const ir::Graph& graph) : graph_(graph), stages_(stages_by_op(graph)) {
  if (!graph.pipeline) return;
  for (size_t i = 0; i < graph.ops.size(); ++i) op_of_.emplace(graph.ops[i].name, i);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (stages_[i] && has_own_rows(graph.ops[i])) {
      const int64_t rows = most(graph, rows_of(graph, graph.ops[i]).shape[0]);
      rows_ = rows_ == 0 ? rows : std::min(rows_, rows);
    }
  std::set<TensorId> cut;  // what stages make by rows
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const bool reads =
        std::any_of(op.in.begin(), op.in.end(), [&](TensorId t) { return cut.count(t) > 0; });
    if (!has_own_rows(op) && !reads) stages_[i].reset();
    if (stages_[i]) cut.insert(op.out.begin(), op.out.end());
  }
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (stages_[i] &&
        (rows_ == 0 || most(graph, rows_of(graph, graph.ops[i]).shape[0]) % rows_ != 0))
      stages_[i].reset();
  const int64_t microbatches = std::min(graph.pipeline->microbatches, rows_);
  if (rows_ > 0) each_ = (rows_ + microbatches - 1) / microbatches;
}

bool Microbatches::check(const ir::Graph& graph, ir::Diagnostics& diagnostics) {
  if (!graph.pipeline) return true;
  const int before = diagnostics.errors();
  const auto stages = stages_of(graph);
  std::map<TensorId, std::pair<const Op*, size_t>> made;  // in a stage: the op that makes it
  std::vector<const Op*> members;
  for (const Op& op : graph.ops) {
    const auto stage = stages.find(op.name);
    if (stage == stages.end()) continue;
    const ops::OpDef& def = *ops::find_op(op.kind);
    const auto refuse = [&](const std::string& why) {
      diagnostics.error(op.loc,
                        fmt::format("'{}' can't be in a stage of the pipeline: {}", op.kind, why));
    };
    std::vector<bool> cut;
    for (const TensorId t : op.in) {
      const auto it = made.find(t);
      cut.push_back(it != made.end());
      if (it != made.end() && it->second.second > stage->second)
        refuse(fmt::format("in stage {} it reads '{}', which '{}' makes in stage {}",
                           stage->second + 1, graph[t].name, it->second.first->name,
                           it->second.second + 1));
    }
    if (has_own_rows(op)) {
      const std::string why = !def.refuse_stage
                                  ? "it is unknown which rows it reads for a row of its result"
                                  : def.refuse_stage(graph, op, cut);
      if (!why.empty()) {
        refuse(why);
        continue;
      }
      members.push_back(&op);
    }
    // If passes put an op in a stage, only its results from cut tensors are cut.
    if (has_own_rows(op) || std::find(cut.begin(), cut.end(), true) != cut.end())
      for (const TensorId t : op.out) made[t] = {&op, stage->second};
  }
  if (diagnostics.errors() != before) return false;
  // Rows must be multiples of any smaller number of rows; so the check holds whichever ops passes
  // leave out.
  const auto rows = [&](const Op* op) -> const ir::Expr& { return rows_of(graph, *op).shape[0]; };
  std::stable_sort(members.begin(), members.end(), [&](const Op* a, const Op* b) {
    return most(graph, rows(a)) < most(graph, rows(b));
  });
  for (size_t i = 1; i < members.size(); ++i) {
    const ir::Expr &fewer = rows(members[i - 1]), &more = rows(members[i]);
    if (ir::same(fewer * ir::Expr(most(graph, more) / most(graph, fewer)), more)) continue;
    diagnostics.error(
        members[i]->loc,
        fmt::format("'{}' can't be in a stage of the pipeline: it has {} rows, no multiple of the "
                    "{} of '{}'",
                    members[i]->kind, more.str(), fewer.str(), members[i - 1]->name));
  }
  return diagnostics.errors() == before;
}

int64_t Microbatches::elements(const ir::Tensor& tensor) const {
  return most_elements(graph_, tensor.shape) / rows_ * each_;
}

ops::Cut Microbatches::within(const ops::TileContext& op, ops::Cut cut) const {
  if (!stage_of(op.id()) || cut.tile.empty()) return cut;
  const ops::OpDef& def = *ops::find_op(op.op().kind);
  const ir::Tensor& y = rows_of(graph_, op.op());
  size_t axis = 0;
  int64_t limit = elements(y);
  if (def.tile_axes[0] == "rows") {
    // For an op over the last axis, whose result has an axis less, the limit is what it reads.
    const bool reduces = !op.op().in.empty() && graph_[op.op().in[0]].shape.size() > y.shape.size();
    const ir::Tensor& x = reduces ? graph_[op.op().in[0]] : y;
    if (x.shape.size() > 1)
      limit = elements(x) / most(graph_, x.shape.back());
    else if (x.shape[0].is_constant())
      axis = 1;  // its only row
  } else if (def.tile_axes[0] != "elements") {
    return cut;
  }
  if (axis >= cut.tile.size()) return cut;
  const int64_t given = cut.tile[axis];
  const auto takes = [&](int64_t extent) {
    cut.tile[axis] = extent;
    return extent <= given && (!def.refuse_cut || def.refuse_cut(op, cut).empty());
  };
  int64_t power = 1;
  while (power <= limit / 2) power *= 2;
  while (power > 0 && !takes(power)) power /= 2;
  // Tiles of less than half the height would be more tasks than they are worth.
  for (int64_t parts = (limit + given - 1) / given; parts > 0 && limit / parts * 2 > power; ++parts)
    if (limit % parts == 0 && takes(limit / parts)) return cut;
  if (power > 0 && takes(power)) return cut;
  for (power = 1; power < given; power *= 2)
    if (takes(power)) return cut;
  cut.tile[axis] = given;
  return cut;
}

namespace {

/// For each task the earliest time at which it may start, in microbatches.
class Times {
 public:
  /// `own`: the earliest times by the tasks' own microbatches.
  Times(const ir::Program& program, const Dependencies& dependencies, std::vector<int64_t> own)
      : p_(program),
        found_(dependencies),
        times_(std::move(own)),
        by_set_(found_.sets.size(), kUnknown),
        by_event_(p_.events.size(), kUnknown),
        by_call_(p_.calls.size(), kUnknown) {}

  /// Makes each task come no sooner than what it needs, on this rank and, if it is earlier in the
  /// list, on others; mates come together.
  std::vector<int64_t> run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      const functions::Function* function = functions::find_function(p_[p_.tasks[t].call]);
      const bool mates = function && function->mates && t + 1 < p_.tasks.size();
      int64_t time = std::max(times_[t], needed(t));
      if (mates) time = std::max({time, times_[t + 1], needed(t + 1)});
      end(t, time);
      if (mates) end(++t, time);
    }
    return std::move(times_);
  }

 private:
  void end(size_t t, int64_t time) {
    times_[t] = time;
    const auto raise = [&](int64_t& last) { last = std::max(last, time); };
    for (const ir::Signal& s : p_.tasks[t].signals) raise(by_event_[index(s.event)]);
    raise(by_call_[index(p_.tasks[t].call)]);
  }
  int64_t needed(size_t t) {
    const ir::Task& task = p_.tasks[t];
    int64_t time = kUnknown;
    for (const uint32_t set : found_.of(ir::id_of<ir::TaskId>(t))) {
      if (by_set_[set] == kUnknown)
        for (const ir::TaskId d : found_.sets[set])
          by_set_[set] = std::max(by_set_[set], times_[index(d)]);
      time = std::max(time, by_set_[set]);
    }
    for (const ir::Wait& w : task.waits)
      if (w.lag == 0) time = std::max(time, by_event_[index(w.event)]);
    for (const ir::CallId call : task.after) time = std::max(time, by_call_[index(call)]);
    return time;
  }

  const ir::Program& p_;
  const Dependencies& found_;
  std::vector<int64_t> times_;
  std::vector<int64_t> by_set_, by_event_, by_call_;  // times of the last of their tasks so far
};

// The microbatch of the first rows that a task touches, or kUnknown. `elements_of`: for each
// buffer, how many elements a microbatch has; 0 for buffers that tell nothing.
int64_t microbatch_of(const ir::Task& task, const std::vector<int64_t>& elements_of) {
  int64_t first = kUnknown;
  for (const ir::Access& a : task.accesses) {
    const int64_t each = elements_of[index(a.region.buffer)];
    if (each == 0) continue;
    const int64_t at = (a.region.r0 * a.region.pitch + a.region.c0) / each;
    first = first == kUnknown ? at : std::min(first, at);
  }
  return first;
}

/// The rank and the task at which that rank would wait for ever, if each rank ran its tasks one by
/// one in the order of `list`.
struct Stuck {
  size_t rank = 0, task = 0;
};
std::optional<Stuck> find_stuck(const ir::Program& p, const std::vector<size_t>& list) {
  const auto world = static_cast<size_t>(p.world);
  const auto runs = [&](size_t task, size_t rank) { return p.tasks[task].ranks >> rank & 1; };
  // By event and rank: the place in the list from which on everything that signals the event has
  // ended.
  std::vector<std::vector<size_t>> behind(p.events.size());
  for (size_t i = 0; i < list.size(); ++i)
    for (const ir::Signal& s : p.tasks[list[i]].signals) {
      behind[index(s.event)].resize(world, 0);
      for (size_t r = 0; r < world; ++r)
        if (runs(list[i], r)) behind[index(s.event)][r] = i + 1;
    }
  std::vector<size_t> at(world, 0);
  const auto may_run = [&](const ir::Task& task, size_t rank) {
    return std::all_of(task.waits.begin(), task.waits.end(), [&](const ir::Wait& w) {
      const std::vector<size_t>& ends = behind[index(w.event)];
      if (w.lag > 0 || ends.empty()) return true;
      const auto self = static_cast<int>(rank);
      const ir::RankRef named = is_counter(p[w.event].kind) ? ir::RankRef::self() : w.from;
      const ir::Ranks from = ir::resolve(named, self, static_cast<int>(p.world));
      return std::all_of(from.begin(), from.end(), [&](int source) {
        return at[static_cast<size_t>(source)] >= ends[static_cast<size_t>(source)];
      });
    });
  };
  for (bool went = true; went;) {
    went = false;
    for (size_t r = 0; r < world; ++r)
      for (; at[r] < list.size() && (!runs(list[at[r]], r) || may_run(p.tasks[list[at[r]]], r));
           ++at[r])
        went = true;
  }
  for (size_t r = 0; r < world; ++r)
    if (at[r] < list.size()) return Stuck{r, list[at[r]]};
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> Microbatches::microbatches(const ir::Program& program) const {
  std::map<std::string_view, ir::BufferId> buffer_of;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (!program.buffers[b].tensor.empty())
      buffer_of.emplace(program.buffers[b].tensor, ir::id_of<ir::BufferId>(b));
  std::vector<int64_t> list(program.tasks.size(), kUnknown);
  std::vector<int64_t> elements_of(program.buffers.size(), 0);
  for (size_t t = 0; t < list.size();) {
    const ir::CallId call = program.tasks[t].call;
    const size_t i = op_of_.at(program[call].op);
    const Op& op = graph_.ops[i];
    const bool staged = stages_[i].has_value();
    std::vector<TensorId> told;
    if (staged) told = inputs_by_rows(graph_, op);
    if (staged) told.insert(told.end(), op.out.begin(), op.out.end());
    for (const TensorId id : told)
      elements_of[index(buffer_of.at(graph_[id].name))] = elements(graph_[id]);
    int64_t last = 0;  // tasks without rows of their own go with the task before them
    for (; t < list.size() && program.tasks[t].call == call; ++t) {
      if (!staged) continue;
      if (const int64_t own = microbatch_of(program.tasks[t], elements_of); own != kUnknown)
        last = own;
      list[t] = last;
    }
    for (const TensorId id : told) elements_of[index(buffer_of.at(graph_[id].name))] = 0;
  }
  return list;
}

std::vector<int64_t> Microbatches::times(const ir::Program& program,
                                         const std::vector<int64_t>& microbatches,
                                         Flow flow) const {
  const auto last = std::find_if(microbatches.rbegin(), microbatches.rend(),
                                 [](int64_t m) { return m != kUnknown; });
  const auto end = static_cast<size_t>(microbatches.rend() - last);
  // How much later everything behind a collective outside of all stages is, if such collectives
  // keep their places.
  const int64_t later = flow == Flow::InPlaces ? rows_ + 2 : 0;
  int64_t begin = 0;
  const Op* collective = nullptr;  // the last one outside of all stages
  std::vector<int64_t> list(program.tasks.size(), kBehind);
  for (size_t t = 0; t < end; ++t) {
    const size_t i = op_of_.at(program[program.tasks[t].call].op);
    const Op& op = graph_.ops[i];
    if (!stages_[i] && ops::is_collective(op) && collective != &op) {
      begin += later;
      collective = &op;
    }
    list[t] = begin + microbatches[t];
    if (stages_[i] && flow == Flow::Overlapped) list[t] += static_cast<int64_t>(*stages_[i]);
  }
  return list;
}

bool Microbatches::order(ir::Program& program, PassContext& context) const {
  if (each_ == 0) return true;
  const std::vector<int64_t> own = microbatches(program);
  const Dependencies dependencies = find_dependencies(program);
  std::optional<Stuck> stuck;
  for (const Flow flow : {Flow::Overlapped, Flow::OneByOne, Flow::InPlaces}) {
    const std::vector<int64_t> at = Times(program, dependencies, times(program, own, flow)).run();
    std::vector<size_t> list(at.size());
    std::iota(list.begin(), list.end(), size_t{0});
    std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) { return at[a] < at[b]; });
    stuck = find_stuck(program, list);
    if (stuck) continue;
    std::vector<ir::Task> tasks;
    tasks.reserve(list.size());
    for (const size_t t : list) tasks.push_back(std::move(program.tasks[t]));
    program.tasks = std::move(tasks);
    context.statistics["microbatches"] = (rows_ + each_ - 1) / each_;
    context.statistics["rows of a microbatch"] = each_;
    context.statistics["microbatches overlap"] = flow == Flow::Overlapped ? 1 : 0;
    return true;
  }
  context.diagnostics.error(
      graph_.pipeline->loc.known() ? graph_.pipeline->loc : graph_.loc,
      fmt::format("with microbatches one after the other, rank {} would never get past '{}': other "
                  "ranks wait there for what it does later",
                  stuck->rank, program[program.tasks[stuck->task].call].op));
  return false;
}

}  // namespace maco::passes
