#include "compiler/api/dot.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/ops/collectives/messages.h"
#include "compiler/ops/op.h"

namespace maco::api {

namespace {

constexpr const char* kBetweenRanks = " [style=bold, color=blue]";

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}
// Lines of a label.
std::string label(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) {
    const std::string one = quoted(line);
    out += (out.empty() ? "" : "\\n") + one.substr(1, one.size() - 2);
  }
  return "\"" + out + "\"";
}

}  // namespace

std::string dot_of_graph(const ir::Graph& graph) {
  std::string s =
      fmt::format("digraph {} {{\n  node [fontname=Helvetica, shape=box];\n", quoted(graph.name));
  const auto type = [&](const ir::Tensor& t) {
    return fmt::format("{}{}", ir::name(t.dtype), ops::to_string(t.shape));
  };
  // By tensor: the op that gave its value last, or the tensor itself.
  std::vector<std::string> giver(graph.tensors.size());
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const ir::Tensor& tensor = graph.tensors[t];
    if (tensor.kind == ir::TensorKind::Temp || tensor.kind == ir::TensorKind::Output ||
        tensor.kind == ir::TensorKind::Scalar)
      continue;
    giver[t] = fmt::format("t{}", t);
    s += fmt::format(
        "  t{} [shape=ellipse, label={}];\n", t,
        label({tensor.name, fmt::format("{} {}", ir::name(tensor.kind), type(tensor))}));
  }
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const ir::Op& op = graph.ops[o];
    const ops::OpDef* def = ops::find_op(op.kind);
    const ops::Cut cut = ops::cut_of(op);
    std::vector<std::string> lines = {op.kind, op.name};
    if (!cut.tile.empty())
      lines.push_back(fmt::format("{} {}", cut.method, fmt::join(cut.tile, " x ")));
    s += fmt::format("  o{} [label={}{}];\n", o, label(lines),
                     def && def->collective ? ", style=filled, fillcolor=lightblue" : "");
    std::set<ir::TensorId> told;
    for (ir::TensorId in : op.in)
      if (told.insert(in).second && !giver[index(in)].empty())
        s += fmt::format("  {} -> o{} [label={}];\n", giver[index(in)], o,
                         label({graph[in].name, type(graph[in])}));
    for (ir::TensorId out : op.out) {
      giver[index(out)] = fmt::format("o{}", o);
      if (graph[out].kind != ir::TensorKind::Output) continue;
      s += fmt::format("  y{0} [shape=ellipse, label={1}];\n  o{2} -> y{0};\n", index(out),
                       label({graph[out].name, "output " + type(graph[out])}), o);
    }
  }
  ir::Diagnostics unheard;  // errors were reported when the graph was built
  std::set<std::pair<size_t, size_t>> told;
  const ops::Messages messages = ops::Messages::match(graph, unheard);
  for (const ops::Message& m : messages.all())
    if (told.emplace(index(m.send), index(m.recv)).second)
      s += fmt::format("  o{} -> o{}{};\n", index(m.send), index(m.recv), kBetweenRanks);
  return s + "}\n";
}

std::string dot_of_tasks(const ir::Program& program) {
  std::string s =
      fmt::format("digraph {} {{\n  rankdir=LR;\n  node [fontname=Helvetica, shape=box];\n",
                  quoted(program.name));
  const auto streams = ir::streams(program);
  std::map<ir::Role, std::string> roles;
  for (size_t sm = 0; sm < streams.size(); ++sm) {
    if (streams[sm].empty()) continue;
    std::string inner, order;
    for (ir::TaskId t : streams[sm]) {
      inner += fmt::format("      t{} [label={}];\n", index(t), label({ir::describe(program, t)}));
      order += fmt::format("{}t{}", order.empty() ? "" : " -> ", index(t));
    }
    if (streams[sm].size() > 1) inner += fmt::format("      {} [style=dashed];\n", order);
    roles[program[streams[sm][0]].role] += fmt::format(
        "    subgraph cluster_sm{0} {{\n      label=\"SM {0}\";\n{1}    }}\n", sm, inner);
  }
  for (const auto& [role, text] : roles)
    s += fmt::format("  subgraph cluster_{0} {{\n    label=\"{0}\";\n{1}  }}\n", ir::name(role),
                     text);
  std::vector<std::vector<size_t>> signallers(program.events.size());
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Signal& signal : program.tasks[t].signals)
      signallers[index(signal.event)].push_back(t);
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Wait& wait : program.tasks[t].waits) {
      if (wait.lag > 0) continue;  // of an earlier launch
      const bool local = is_counter(program[wait.event].kind);
      for (size_t from : signallers[index(wait.event)])
        s += fmt::format("  t{} -> t{}{};\n", from, t, local ? "" : kBetweenRanks);
    }
  return s + "}\n";
}

}  // namespace maco::api
