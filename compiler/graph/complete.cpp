#include "compiler/graph/complete.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace maco::graph {

void name_ops(ir::Graph& graph) {
  std::unordered_set<std::string> taken;
  const auto base_of = [&](const ir::Op& op) -> const std::string& {
    const bool by_output = !op.out.empty() && index(op.out[0]) < graph.tensors.size();
    return by_output ? graph[op.out[0]].name : op.kind;
  };
  for (const ir::Op& op : graph.ops)
    if (op.named) taken.insert(op.name);
  std::unordered_map<std::string, int> used;  // how often a base name was taken
  for (ir::Op& op : graph.ops) {
    if (op.named) continue;
    const std::string base = base_of(op);
    std::string name = base;
    int& n = used[base];
    if (!op.out.empty() && n == 0)
      n = 1;
    else
      name = fmt::format("{}_{}", base, ++n);
    while (!taken.insert(name).second) name = fmt::format("{}_{}", base, ++n);
    const bool given = !op.name.empty() && op.name != name;
    // An op that can't be named after its output, because another op has that name, needs a name in
    // the text.
    op.named = given || (!op.out.empty() && name != base);
    if (given)
      taken.insert(op.name);
    else
      op.name = std::move(name);
  }
}

void order_tensors(ir::Graph& graph) {
  std::vector<ir::TensorId> order;
  std::vector<bool> placed(graph.tensors.size(), false);
  const auto place = [&](ir::TensorId id) {
    if (!placed[index(id)]) order.push_back(id);
    placed[index(id)] = true;
  };
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].kind != ir::TensorKind::Output &&
        graph.tensors[i].kind != ir::TensorKind::Temp)
      place(ir::id_of<ir::TensorId>(i));
  for (const ir::Op& op : graph.ops)
    for (ir::TensorId id : op.out) place(id);
  for (size_t i = 0; i < graph.tensors.size(); ++i) place(ir::id_of<ir::TensorId>(i));
  if (std::is_sorted(order.begin(), order.end())) return;
  std::vector<ir::TensorId> renamed(graph.tensors.size());
  std::vector<ir::Tensor> tensors;
  for (ir::TensorId id : order) {
    renamed[index(id)] = ir::id_of<ir::TensorId>(tensors.size());
    tensors.push_back(std::move(graph[id]));
  }
  graph.tensors = std::move(tensors);
  for (ir::Op& op : graph.ops) {
    for (ir::TensorId& id : op.in) id = renamed[index(id)];
    for (ir::TensorId& id : op.out) id = renamed[index(id)];
  }
}

}  // namespace maco::graph
