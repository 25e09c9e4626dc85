#include "compiler/passes/graph_edit.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/attrs.h"

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

int64_t constant_of(const ir::Graph& graph, const Op& op, const char* attr, int64_t otherwise) {
  return ops::attr_expr(graph, op, attr)
      .value_or(ir::Expr(otherwise))
      .constant()
      .value_or(otherwise);
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
