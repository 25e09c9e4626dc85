#include "compiler/passes/graph_edit.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/rope.h"

namespace maco::passes {

using ir::Op;

Constraints::Constraints(const ir::Graph& graph) {
  for (const Op& op : graph.ops) awaited_.insert(op.after.begin(), op.after.end());
  const auto add = [&](const std::vector<std::string>& names, size_t i, bool region) {
    const int place = region ? static_cast<int>(i) : -1 - static_cast<int>(i);
    for (const std::string& name : names) places_[name].insert(place);
  };
  for (size_t i = 0; i < graph.overlap_regions.size(); ++i)
    add(graph.overlap_regions[i].ops, i, true);
  if (graph.pipeline)
    for (size_t i = 0; i < graph.pipeline->stages.size(); ++i)
      add(graph.pipeline->stages[i], i, false);
}

const std::set<int>& Constraints::places(const Op& op) const {
  static const std::set<int> none;
  const auto it = places_.find(op.name);
  return it == places_.end() ? none : it->second;
}

bool Constraints::constrained(const Op& op) const {
  return awaited(op) || !op.after.empty() || op.phase || op.overlap || op.overlap_group ||
         op.priority != ir::Priority::Normal || !places(op).empty();
}

bool Constraints::same(const Op& a, const Op& b) const {
  const auto after = [](const Op& op) {
    return std::set<std::string>(op.after.begin(), op.after.end());
  };
  return a.phase == b.phase && a.overlap == b.overlap && a.overlap_group == b.overlap_group &&
         a.priority == b.priority && after(a) == after(b) && places(a) == places(b);
}

bool writes_what_is_read(const ir::Graph& graph, const Op& writer, const Op& op) {
  return std::any_of(writer.out.begin(), writer.out.end(), [&](ir::TensorId t) {
    return graph[t].kind == ir::TensorKind::State &&
           std::find(op.in.begin(), op.in.end(), t) != op.in.end();
  });
}

bool is_fence(const ir::Graph& graph, const Op& op) { return ops::runs_alone(graph, op); }

bool roles_name_ops(const ir::Graph& graph) {
  const auto named = [](const ir::Roles& roles) {
    const auto* ranges = std::get_if<std::vector<ir::RoleRange>>(&roles);
    return ranges && std::any_of(ranges->begin(), ranges->end(),
                                 [](const ir::RoleRange& r) { return !r.tasks.empty(); });
  };
  if (const auto* roles = std::get_if<ir::Roles>(&graph.sm_roles.value)) return named(*roles);
  const auto& variants = std::get<std::vector<ir::RoleVariant>>(graph.sm_roles.value);
  return std::any_of(variants.begin(), variants.end(),
                     [&](const ir::RoleVariant& v) { return named(v.roles); });
}

void share_home(ir::Graph& graph, const std::string& beside, const std::string& kind) {
  auto* roles = std::get_if<ir::Roles>(&graph.sm_roles.value);
  auto* ranges = roles ? std::get_if<std::vector<ir::RoleRange>>(roles) : nullptr;
  if (!ranges) return;
  const auto takes = [](const ir::RoleRange& range, const std::string& task) {
    return std::find(range.tasks.begin(), range.tasks.end(), task) != range.tasks.end();
  };
  for (ir::RoleRange& range : *ranges)
    if (takes(range, beside) && !takes(range, kind)) range.tasks.push_back(kind);
}

namespace {
void erase_names(std::vector<std::string>& list, const std::set<std::string>& names) {
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const std::string& n) { return names.count(n) > 0; }),
             list.end());
}
}  // namespace

FreshNames::FreshNames(const ir::Graph& graph) {
  for (const Op& op : graph.ops) ops_.names.insert(op.name);
  for (const ir::Tensor& t : graph.tensors) tensors_.names.insert(t.name);
  for (const ir::Dim& d : graph.dims) tensors_.names.insert(d.name);
}

std::string FreshNames::fresh(Taken& taken, const std::string& base) {
  std::string name = base;
  for (int& n = taken.last.try_emplace(base, 1).first->second; !taken.names.insert(name).second;)
    name = fmt::format("{}{}", base, ++n);
  return name;
}

Readers readers_of(const ir::Graph& graph) {
  Readers readers(graph.tensors.size());
  for (size_t i = 0; i < graph.ops.size(); ++i)
    for (ir::TensorId t : graph.ops[i].in) readers[index(t)].push_back(i);
  return readers;
}

Writers writers_of(const ir::Graph& graph) {
  Writers writers(graph.tensors.size(), kNoWriter);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    for (ir::TensorId t : graph.ops[i].out) writers[index(t)] = i;
  return writers;
}

int64_t constant_of(const ir::Graph& graph, const Op& op, const char* attr, int64_t otherwise) {
  return ops::attr_expr(graph, op, attr)
      .value_or(ir::Expr(otherwise))
      .constant()
      .value_or(otherwise);
}

namespace {
// The index of the operand of which an op may read some columns in place of all.
size_t operand_of_columns(const Op& op) { return op.kind == "kv_append" ? 1 : 0; }
}  // namespace

ops::Columns columns_read(const ir::Graph& graph, const Op& op, ir::TensorId of) {
  const int64_t all = *graph[of].shape.back().constant();
  if (op.in[operand_of_columns(op)] != of || std::count(op.in.begin(), op.in.end(), of) != 1)
    return {0, all};
  const int64_t first = constant_of(graph, op, "first_column", 0);
  return {first, constant_of(graph, op, "columns", all - first)};
}

std::string refuse_maker(const ir::Graph& graph, const Constraints& constraints,
                         const Writers& writers, ir::TensorId y, const char* verb,
                         const char* done) {
  const size_t writer = writers[index(y)];
  if (graph[y].kind != ir::TensorKind::Temp || writer == kNoWriter ||
      graph.ops[writer].kind != "matmul")
    return fmt::format("no product makes what it {}", verb);
  const Op& product = graph.ops[writer];
  if (constraints.constrained(product)) return "a constraint concerns its product";
  for (const char* attr : {"activation", "epilogue", "paired", "norm_eps", done})
    if (product.attrs.count(attr) > 0) return "its product does something else behind the sums";
  if (product.attrs.count("method") > 0 || product.attrs.count("tile") > 0)
    return "its product has its tiles";
  const size_t own_inputs = product.attrs.count("turned") > 0 ? 3 : 2;  // a, b, sines
  if (product.in.size() > own_inputs) return "its product has a bias";
  if (graph[y].shape.size() != 2) return "its product has more than two axes";
  return "";
}

Turns turns_of(const ir::Graph& graph, const ir::Op& rope) {
  Turns turns = {ops::attr_expr(graph, rope, "head_dim"),
                 ops::attr_expr(graph, rope, "position"),
                 ops::rotary_dim(graph, rope),
                 ops::attr_number(rope, "theta", 10000),
                 ops::attr_number(rope, "attention_factor", 1),
                 ops::attr_flag(rope, "interleaved", false),
                 {},
                 {}};
  if (const auto it = rope.attrs.find("scaling"); it != rope.attrs.end()) {
    turns.scaling = it->second;
    turns.scaling->loc = {};
  }
  const int first = rope.kind == "rope" ? ops::rope_inputs(rope).given() : 0;
  if (first > 0 || rope.kind == "rope_sines")
    turns.given.assign(rope.in.begin() + first, rope.in.end());
  return turns;
}

bool takes_columns(const ir::Graph& graph, const ir::Op& op, ir::TensorId t, ir::TensorId x,
                   ops::Columns columns) {
  const bool reads_rows = op.kind == "rope" || op.kind == "attention";
  if ((!reads_rows && op.kind != "kv_append") || op.attrs.count("columns") > 0 ||
      op.in[operand_of_columns(op)] != t || std::count(op.in.begin(), op.in.end(), t) != 1)
    return false;
  // Attention on tensor cores reads queries in whole vectors.
  constexpr int64_t kVector = 8;
  const int64_t all = graph[x].shape.back().constant().value_or(1);
  return op.kind != "attention" || columns.count % kVector != 0 ||
         (all % kVector == 0 && columns.first % kVector == 0);
}
void take_columns(ir::Op& op, ir::TensorId t, ir::TensorId x, ops::Columns columns, ir::Loc loc) {
  std::replace(op.in.begin(), op.in.end(), t, x);
  op.attrs["first_column"] = {ir::Expr(columns.first), loc};
  op.attrs["columns"] = {ir::Expr(columns.count), loc};
}

void fold_into_readers(ir::Graph& graph, PassContext& context, const Folding& folding) {
  if (roles_name_ops(graph) || graph.pipeline) return;
  std::vector<bool> dead(graph.ops.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    if (op.kind != folding.kind || (folding.concerns && !folding.concerns(op))) continue;
    const std::string why = folding.refuse(op);
    if (!why.empty()) {
      context.fused(folding.kind + " stays: " + why, op.name);
      continue;
    }
    context.fused(fmt::format("{} in the {} {}", folding.kind, folding.where,
                              folding.made_by ? "before it" : "that read it"),
                  op.name);
    folding.fold(op);
    dead[i] = true;
  }
  context.statistics["ops fused away"] += std::count(dead.begin(), dead.end(), true);
  erase_ops(graph, dead);
}

void join_places(ir::Graph& graph, const std::string& name, const std::string& added) {
  const auto join = [&](std::vector<std::string>& list) {
    auto at = std::find(list.begin(), list.end(), name);
    if (at != list.end()) list.insert(at, added);
  };
  for (ir::OverlapRegion& r : graph.overlap_regions) join(r.ops);
  if (graph.pipeline)
    for (auto& stage : graph.pipeline->stages) join(stage);
}

void erase_ops(ir::Graph& graph, const std::vector<bool>& dead) {
  std::set<std::string> names;
  std::vector<Op> kept;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (dead[i])
      names.insert(graph.ops[i].name);
    else
      kept.push_back(std::move(graph.ops[i]));
  }
  // A fused op may have taken the name of an op that is gone.
  for (const Op& op : kept) names.erase(op.name);
  graph.ops = std::move(kept);
  for (ir::OverlapRegion& r : graph.overlap_regions) erase_names(r.ops, names);
  if (graph.pipeline)
    for (auto& stage : graph.pipeline->stages) erase_names(stage, names);

  std::vector<bool> defined(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    for (ir::TensorId t : op.out) defined[index(t)] = true;
  std::vector<ir::TensorId> id(graph.tensors.size());
  std::vector<ir::Tensor> tensors;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].kind == ir::TensorKind::Temp && !defined[i]) continue;
    id[i] = ir::id_of<ir::TensorId>(tensors.size());
    tensors.push_back(std::move(graph.tensors[i]));
  }
  graph.tensors = std::move(tensors);
  for (Op& op : graph.ops) {
    for (ir::TensorId& t : op.in) t = id[index(t)];
    for (ir::TensorId& t : op.out) t = id[index(t)];
  }
}

}  // namespace maco::passes
