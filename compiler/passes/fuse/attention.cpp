// attention: attention over a cache to which rows were just appended, the appends, and the
// ops that prepare their operands become one op.
//
//   k = rope(slice(qkv)); kc = kv_append(kc, k, at = pos); vc = kv_append(vc, slice(qkv), at = pos)
//   y = attention(rope(slice(qkv)), kc, vc, length = pos + 1)
//
// becomes an attention_step of qkv and of the caches as they were; the appends come behind it. Then
// nothing on the way from qkv to y writes a cache, the caches can be loaded before qkv is ready,
// and slices, norms of heads and rope are computed where queries, keys and values are read. Named
// tensors are rounded as before; sums come in another order.
//
// This is done if the launch appends few rows, of types that tensor cores take, and no constraint
// concerns the ops.
//
// The remaining attentions of few rows over many keys become attention_steps whose caches have the
// new rows already, whatever roles and constraints are: such a step divides the keys of a head
// among several tasks.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/functions/attention.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/op.h"
#include "compiler/ops/rope.h"
#include "compiler/passes/fuse/columns.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/fuse/uses.h"
#include "compiler/passes/graph_edit.h"

namespace maco::passes {

using ir::Expr;
using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

// Where rows of queries, keys or values come from, and what is done to them on the way.
struct Rows {
  TensorId source{};
  int64_t begin = 0;                                     // first column
  std::optional<std::pair<TensorId, double>> norm = {};  // weights and eps
  std::optional<size_t> rope = {};                       // op
};

class AttentionFuser {
 public:
  AttentionFuser(ir::Graph& graph, PassContext& context)
      : graph_(graph), context_(context), uses_(graph) {}

  void run() {
    std::vector<Step> steps;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (graph_.ops[i].kind != "attention") continue;
      Step step{.attention = i};
      const std::string why = find(step);
      if (why.empty())
        steps.push_back(step);
      else
        context_.fused(fmt::format("attention stays: {}", why), graph_.ops[i].name);
    }
    if (!steps.empty()) replace(steps);
  }

 private:
  struct Step {
    size_t attention = 0, keys = 0, values = 0;  // ops: the attention, the appends
    Rows q{}, k{}, v{};
  };

  // Finds a step. Returns why there is none, or "".
  std::string find(Step& step) const {
    const Op& op = graph_.ops[step.attention];
    if (uses_.constraints.constrained(op)) return "a constraint concerns it";
    if (op.attrs.count("columns") > 0) return "it reads columns of a matrix already";
    const ir::Tensor& q = graph_[op.in[0]];
    const int64_t d =
        ops::attr_expr(graph_, op, "head_dim").value_or(Expr(0)).constant().value_or(0);
    const ir::DType type = graph_[op.in[1]].dtype;
    if (type != ir::DType::BF16 && type != ir::DType::F16)
      return fmt::format("its keys are {}", ir::name(type));
    if (!context_.machine.has_mma(type)) return "the target has no tensor cores for its type";
    if (d % 8 != 0 || d > functions::kMostHeadDim)
      return fmt::format("its head_dim is {}, not a multiple of 8 up to {}", d,
                         functions::kMostHeadDim);
    const auto rows = bounds_of(q.shape[0]);
    if (!rows || rows->hi > functions::kStepRows)
      return fmt::format("it has more than {} rows", functions::kStepRows);
    for (const auto& [input, append] : {std::pair(1, &step.keys), {2, &step.values}}) {
      const std::string why = find_append(step.attention, input, *append);
      if (!why.empty()) return why;
    }
    if (op.in[1] == op.in[2]) return "its keys are its values";
    if (uses_.fence_between(std::min(step.keys, step.values), step.attention))
      return "a barrier is between it and what is appended";

    const Expr& t = q.shape[0];
    step.q = trace(op.in[0], t, type, d, true);
    step.k = trace(graph_.ops[step.keys].in[1], t, type, d, true);
    if (!same_rope(step.q.rope, step.k.rope)) {
      step.q = trace(op.in[0], t, type, d, false);
      step.k = trace(graph_.ops[step.keys].in[1], t, type, d, false);
    }
    step.v = trace(graph_.ops[step.values].in[1], t, type, 0, false);
    if (step.q.norm && step.k.norm &&
        graph_[step.q.norm->first].dtype != graph_[step.k.norm->first].dtype)
      return "the norms of its queries and keys are of two types";
    for (const Rows* r : {&step.q, &step.k, &step.v}) {
      if (graph_[r->source].dtype != type) return "its operands are of several types";
      if (graph_[r->source].kind == TensorKind::State) return "it reads a state besides its caches";
    }
    return "";
  }

  // Finds the kv_append that wrote the last rows of the attention's input, if no other op has read
  // them.
  std::string find_append(size_t attention, int input, size_t& append) const {
    const Op& op = graph_.ops[attention];
    const TensorId cache = op.in[static_cast<size_t>(input)];
    const char* what = input == 1 ? "keys" : "values";
    const std::vector<size_t>& writers = uses_.writers[index(cache)];
    const auto behind = std::lower_bound(writers.begin(), writers.end(), attention);
    if (graph_[cache].kind != TensorKind::State || behind == writers.begin() ||
        graph_.ops[*(behind - 1)].kind != "kv_append")
      return fmt::format("its {} are no cache that was just appended to", what);
    append = *(behind - 1);
    const Op& a = graph_.ops[append];
    if (uses_.constraints.constrained(a)) return "a constraint concerns what appends to its cache";
    if (a.attrs.count("columns") > 0) return "what it appends is columns of a matrix already";
    for (size_t reader : uses_.readers[index(cache)])
      if (reader > append && reader < attention)
        return fmt::format("something else reads its {} first", what);
    const Expr& rows = graph_[op.in[0]].shape[0];
    const Expr at = ops::attr_expr(graph_, a, "at").value_or(Expr(0));
    const Expr length = ops::attr_expr(graph_, op, "length").value_or(graph_[cache].shape[0]);
    if (graph_[a.in[1]].shape[0] != rows || ir::canonical(at + rows - length) != Expr(0))
      return fmt::format("the rows appended to its {} are not its last ones, as many as it has",
                         what);
    return "";
  }

  std::optional<ir::Interval> bounds_of(const Expr& e) const {
    return ir::bounds(e, [&](std::string_view n) { return graph_.range_of(n); });
  }
  bool is_rows(TensorId t, const Expr& rows) const {
    const ir::Shape& shape = graph_[t].shape;
    return shape.size() == 2 && shape[0] == rows && shape[1].is_constant();
  }

  // Follows `t` back to the tensor from which it was made. head_dim 0: not through norms.
  Rows trace(TensorId t, const Expr& rows, ir::DType type, int64_t head_dim, bool ropes) const {
    Rows at{.source = t}, found = at;
    while (graph_[at.source].dtype == type) {
      if (is_rows(at.source, rows)) found = at;
      const std::vector<size_t>& writers = uses_.writers[index(at.source)];
      if (graph_[at.source].kind != TensorKind::Temp || writers.size() != 1) break;
      const size_t i = writers[0];
      const Op& op = graph_.ops[i];
      if (uses_.constraints.constrained(op)) break;
      if (op.kind == "slice" || op.kind == "split") {
        const auto begin = columns_from(op, at.source, rows);
        if (begin && graph_[op.in[0]].dtype == type) {
          found.source = op.in[0];
          found.begin = *begin;
        }
        break;
      }
      if (uses_.readers[index(at.source)].size() != 1 || op.in.empty()) break;
      if (op.kind == "rope") {
        const ops::RopeInputs inputs = ops::rope_inputs(op);
        const bool stays =
            inputs.given() == 0 ||
            std::none_of(op.in.begin() + inputs.given(), op.in.end(),
                         [&](TensorId read) { return graph_[read].kind == TensorKind::State; });
        const bool folds = ropes && !at.rope && !at.norm && inputs.positions == 0 && stays &&
                           op.attrs.count("columns") == 0 && is_rows(op.out[0], rows) &&
                           *ops::attr_expr(graph_, op, "head_dim") == Expr(head_dim);
        if (!folds) break;
        at.rope = i;
      } else if (op.kind == "rmsnorm") {
        const bool folds =
            head_dim > 0 && !at.norm && graph_[op.in[0]].shape.back() == Expr(head_dim) &&
            ir::is_float(graph_[op.in[1]].dtype) && graph_[op.in[1]].kind != TensorKind::State;
        if (!folds) break;
        at.norm = {op.in[1], ops::attr_number(op, "eps", 1e-6)};
      } else if (op.kind != "reshape") {
        break;
      }
      at.source = op.in[0];
    }
    return found;
  }

  // The column of the operand of `op`, a slice or a split, at which its result `t` begins; nothing
  // if the result isn't whole rows of adjacent columns.
  std::optional<int64_t> columns_from(const Op& op, TensorId t, const Expr& rows) const {
    const ir::Tensor& from = graph_[op.in[0]];
    if (!is_rows(t, rows) || !is_rows(op.in[0], rows)) return std::nullopt;
    const auto axis = ops::attr_expr(graph_, op, "axis").value_or(Expr(0)).constant();
    if (axis != 1 && axis != -1) return std::nullopt;
    const int64_t width = *graph_[t].shape[1].constant();
    if (op.kind == "split")
      return width * (std::find(op.out.begin(), op.out.end(), t) - op.out.begin());
    if (ops::attr_expr(graph_, op, "step").value_or(Expr(1)) != Expr(1)) return std::nullopt;
    const auto begin = ops::attr_expr(graph_, op, "begin").value_or(Expr(0)).constant();
    if (!begin) return std::nullopt;
    return *begin < 0 ? std::max<int64_t>(0, *begin + *from.shape[1].constant()) : *begin;
  }

  bool same_rope(const std::optional<size_t>& a, const std::optional<size_t>& b) const {
    if (!a || !b) return a.has_value() == b.has_value();
    return turns_of(graph_, graph_.ops[*a]) == turns_of(graph_, graph_.ops[*b]);
  }

  Op step_of(const Step& step, FreshNames& names) {
    const Op& attention = graph_.ops[step.attention];
    const Op &keys = graph_.ops[step.keys], &values = graph_.ops[step.values];
    Op op = attention;
    op.kind = "attention_step";
    op.in = {step.q.source, step.k.source, step.v.source, attention.in[1], attention.in[2]};
    const int64_t d = *ops::attr_expr(graph_, attention, "head_dim")->constant();
    const auto number = [&](const char* attr, int64_t value) {
      op.attrs[attr] = {Expr(value), attention.loc};
    };
    number("heads", *graph_[attention.in[0]].shape[1].constant() / d);
    number("q_begin", step.q.begin);
    number("k_begin", step.k.begin);
    number("v_begin", step.v.begin);
    if (step.q.rope) {
      const Op& rope = graph_.ops[*step.q.rope];
      for (const char* attr :
           {"position", "theta", "interleaved", "scaling", "rotary_dim", "attention_factor"})
        if (const auto it = rope.attrs.find(attr); it != rope.attrs.end())
          op.attrs[attr] = it->second;
      if (const ops::RopeInputs inputs = ops::rope_inputs(rope); inputs.given() > 0) {
        op.in.insert(op.in.end(), rope.in.begin() + inputs.given(), rope.in.end());
        op.attrs[inputs.tables > 0 ? "tables" : "frequencies"] = {true, attention.loc};
      }
    }
    for (const auto& [attr, rows] : {std::pair("q_eps", &step.q), {"k_eps", &step.k}})
      if (rows->norm) {
        op.in.push_back(rows->norm->first);
        op.attrs[attr] = {rows->norm->second, attention.loc};
      }
    op.in_loc.assign(op.in.size(), attention.loc);
    op.dtype = graph_[attention.out[0]].dtype;
    for (const Op* append : {&keys, &values}) {
      ir::Tensor rows;
      rows.name = names.tensor(graph_[append->in[1]].name + ".rows");
      rows.dtype = graph_[append->in[0]].dtype;
      rows.shape = {graph_[attention.in[0]].shape[0], graph_[append->in[0]].shape[1]};
      rows.loc = append->loc;
      op.out.push_back(ir::id_of<TensorId>(graph_.tensors.size()));
      graph_.tensors.push_back(std::move(rows));
    }
    return op;
  }

  void replace(const std::vector<Step>& steps) {
    FreshNames names(graph_);
    std::vector<const Step*> of(graph_.ops.size(), nullptr);  // by attention
    std::vector<bool> moved(graph_.ops.size(), false);
    for (const Step& s : steps) {
      of[s.attention] = &s;
      moved[s.keys] = moved[s.values] = true;
    }
    // Only the next op that touches the cache waits for the appended rows, mostly in the next
    // launch. So the copies come last, and no task of the chain stands behind them.
    std::vector<Op> ops, late;
    const auto copy_what = [&](const std::function<bool(TensorId)>& touched) {
      std::vector<Op> later;
      for (Op& append : late) (touched(append.out[0]) ? ops : later).push_back(std::move(append));
      late = std::move(later);
    };
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (moved[i]) continue;
      const Op& here = graph_.ops[i];
      const bool fence = uses_.is_fence(i);
      copy_what([&](TensorId cache) {
        return fence || std::count(here.in.begin(), here.in.end(), cache) > 0 ||
               std::count(here.out.begin(), here.out.end(), cache) > 0;
      });
      if (!of[i]) {
        ops.push_back(graph_.ops[i]);
        continue;
      }
      const Step& s = *of[i];
      std::string with;
      if (s.q.norm || s.k.norm) with += "norms of heads, ";
      if (s.q.rope) with += "rope, ";
      const Op op = step_of(s, names);
      context_.fused(fmt::format("attention with {}the rows appended to its caches", with),
                     op.name);
      Op keys = graph_.ops[s.keys], values = graph_.ops[s.values];
      keys.in[1] = op.out[1];
      values.in[1] = op.out[2];
      ops.push_back(op);
      late.push_back(std::move(keys));
      late.push_back(std::move(values));
    }
    copy_what([](TensorId) { return true; });
    const size_t before = graph_.ops.size();
    graph_.ops = std::move(ops);
    drop_unread();
    context_.statistics["ops fused away"] += static_cast<int64_t>(before - graph_.ops.size());
  }

  // Removes ops that were folded into a step and that nothing else reads.
  void drop_unread() {
    std::vector<bool> dead(graph_.ops.size(), false), read(graph_.tensors.size(), false);
    const std::set<std::string> kinds = {"slice", "split", "reshape", "rmsnorm", "rope"};
    for (size_t i = graph_.ops.size(); i-- > 0;) {
      const Op& op = graph_.ops[i];
      dead[i] = kinds.count(op.kind) > 0 && !uses_.constraints.constrained(op) &&
                std::all_of(op.out.begin(), op.out.end(), [&](TensorId t) {
                  return graph_[t].kind == TensorKind::Temp && !read[index(t)];
                });
      if (dead[i]) continue;
      for (TensorId t : op.in) read[index(t)] = true;
    }
    erase_ops(graph_, dead);
  }

  ir::Graph& graph_;
  PassContext& context_;
  const Uses uses_;
};

bool has_few_rows(const ir::Graph& graph, const Op& attention) {
  const auto rows = most_rows(graph, attention.in[0]);
  return rows && *rows <= functions::kStepRows;
}
// Why an attention of few rows over stored keys can't be a step, or "".
std::string refuse_stored(const ir::Graph& graph, const Op& op, const cost::Machine& machine) {
  // With fewer keys, tasks with all keys of a head end before a hand-off would. With many rows
  // attention_tile's tasks do (docs/notebook/single-ops.md, "Few rows over stored keys").
  constexpr int64_t kLeastKeys = 128, kLeastOfMany = 1024;
  const auto lookup = [&](std::string_view n) { return graph.range_of(n); };
  const ir::Tensor &q = graph[op.in[0]], &keys = graph[op.in[1]];
  const int64_t d = ops::attr_expr(graph, op, "head_dim").value_or(Expr(0)).constant().value_or(0);
  if (op.attrs.count("columns") > 0 || op.attrs.count("first_column") > 0)
    return "it reads columns of a matrix";
  if ((keys.dtype != ir::DType::BF16 && keys.dtype != ir::DType::F16) || q.dtype != keys.dtype ||
      graph[op.in[2]].dtype != keys.dtype || !machine.has_mma(keys.dtype))
    return "tensor cores don't take its types";
  if (d % 8 != 0 || d > functions::kMostHeadDim)
    return fmt::format("its head_dim is {}, not a multiple of 8 up to {}", d,
                       functions::kMostHeadDim);
  if (op.in[1] == op.in[2]) return "its keys are its values";
  const auto rows = ir::bounds(q.shape[0], lookup);
  const Expr length = ops::attr_expr(graph, op, "length").value_or(keys.shape[0]);
  const auto all = ir::bounds(length, lookup),
             old = ir::bounds(ir::canonical(length - q.shape[0]), lookup);
  if (!rows || !all || !old || old->lo < 0) return "it may have fewer keys than rows";
  const auto typical = [&](const Expr& e, const ir::Interval& range) {
    return ir::typical_value(e, [&](auto n) { return graph.typical_of(n); }, range);
  };
  const int64_t group = *q.shape[1].constant() / *keys.shape[1].constant();
  const bool many = typical(q.shape[0], *rows) * group >= functions::kManyRows;
  const int64_t least = many ? kLeastOfMany : kLeastKeys;
  if (typical(length, *all) < least) return fmt::format("it has fewer than {} keys", least);
  const auto window = ops::attr_expr(graph, op, "window");
  if (window && *window->constant() + typical(q.shape[0], *rows) - 1 < least)
    return fmt::format("its rows see fewer than {} keys", least);
  return "";
}

void make_stored_steps(ir::Graph& graph, PassContext& context) {
  FreshNames names(graph);
  bool any = false;
  for (Op& op : graph.ops) {
    // An attention that says how it is cut stays as it is.
    if (op.kind != "attention" || !has_few_rows(graph, op) || is_cut(op)) continue;
    if (const std::string why = refuse_stored(graph, op, context.machine); !why.empty()) {
      context.fused(fmt::format("its keys aren't shared out to tasks: {}", why), op.name);
      continue;
    }
    const TensorId q = op.in[0], keys = op.in[1], values = op.in[2];
    const int64_t d = *ops::attr_expr(graph, op, "head_dim")->constant();
    op.kind = "attention_step";
    op.in = {q, keys, values, keys, values};
    op.in_loc.assign(op.in.size(), op.loc);
    op.attrs["heads"] = {Expr(*graph[q].shape[1].constant() / d), op.loc};
    op.attrs["stored"] = {true, op.loc};
    op.dtype = graph[op.out[0]].dtype;
    for (const TensorId cache : {keys, values}) {
      ir::Tensor rows;
      rows.name = names.tensor(graph[cache].name + ".rows");
      rows.dtype = graph[cache].dtype;
      rows.shape = {graph[q].shape[0], graph[cache].shape[1]};
      rows.loc = op.loc;
      op.out.push_back(ir::id_of<TensorId>(graph.tensors.size()));
      graph.tensors.push_back(std::move(rows));
    }
    context.fused("its keys are shared out to tasks", op.name);
    any = true;
  }
  if (any) share_home(graph, "attention", "attention_step");
}

// A pipeline changes no bits: an attention that the pipeline keeps from being fused is refused,
// since fusing would order sums differently.
bool check_pipeline(const ir::Graph& without, const ir::Graph& graph, PassContext& context) {
  bool ok = true;
  for (const Op& op : graph.ops) {
    if (op.kind != "attention") continue;
    const auto same = std::find_if(without.ops.begin(), without.ops.end(), [&](const Op& other) {
      return other.name == op.name && other.kind == op.kind;
    });
    if (same != without.ops.end()) continue;
    context.diagnostics.error(
        op.loc,
        fmt::format("'{}' and what appends to its caches can't be in a stage of the pipeline: they "
                    "are computed together",
                    op.kind));
    ok = false;
  }
  return ok;
}

}  // namespace

bool fold_attention(ir::Graph& graph, PassContext& context) {
  const auto fold = [](ir::Graph& g, PassContext& c) {
    if (!roles_name_ops(g)) AttentionFuser(g, c).run();
    make_stored_steps(g, c);
  };
  if (!graph.pipeline) {
    fold(graph, context);
    return true;
  }
  ir::Graph without = graph;
  without.pipeline.reset();
  PassContext unheard = context;
  fold(without, unheard);
  fold(graph, context);
  return check_pipeline(without, graph, context);
}

}  // namespace maco::passes
