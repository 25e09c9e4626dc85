// check.cpp: the parts of the check in order, names and expressions.
#include "compiler/graph/check.h"

#include <fmt/format.h>

#include "compiler/graph/check_parts.h"
#include "compiler/graph/complete.h"
#include "compiler/graph/order.h"
#include "compiler/graph/roles.h"
#include "compiler/ops/collectives/messages.h"
#include "compiler/ops/op.h"
#include "ir/ranks.h"

namespace maco::graph {

namespace {

/// A text for a message: cut, control characters replaced.
std::string quoted(const std::string& text) {
  constexpr size_t kMost = 40;
  std::string shown;
  for (const char c : text.substr(0, kMost))
    shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return "'" + shown + (text.size() > kMost ? "...'" : "'");
}

void check_settings(Check& c) {
  check_name(c, c.graph.name, c.graph.loc, "the name of the graph");
  if (c.graph.comm_buffer_bytes && *c.graph.comm_buffer_bytes < 0)
    c.error(c.key("comm_buffer_bytes"),
            fmt::format("'comm_buffer_bytes' must be at least 0, found {}",
                        *c.graph.comm_buffer_bytes));
}

}  // namespace

bool check_name(Check& c, const std::string& name, ir::Loc loc, const std::string& what) {
  if (ir::is_identifier(name)) return true;
  c.error(loc, fmt::format("{} must be letters, digits and '_' with dots between parts, found {}",
                           what, quoted(name)));
  return false;
}

bool check_expr(Check& c, const ir::Expr& e, ir::Loc loc, const std::string& what, ExprUse use,
                const ir::Expr* guard) {
  for (const std::string& name : e.vars()) {
    const auto found = c.variables.find(name);
    if (found != c.variables.end() && allowed(use, found->second.kind)) continue;
    if (found != c.variables.end())
      c.error(loc, why_not(use, name, found->second.kind, what));
    else if (c.graph.find_tensor(name))
      c.error(loc, fmt::format("'{}' is a tensor and can't stand in an expression", name));
    else
      c.error(loc, fmt::format("unknown name {} in {}{}", quoted(name), what,
                               near_variable(c.variables, use, name)));
    return false;
  }
  const std::string why = why_no_value(c.variables, e, guard);
  if (!why.empty()) c.error(loc, why);
  return why.empty();
}

bool check_graph(const ir::Graph& graph, const CheckOptions& options,
                 ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  DirectReport report(diagnostics);
  Check c{graph, options, report};
  if (graph.world < 1 || graph.world > ir::kMaxWorld) {
    // Nothing that depends on ranks can be checked.
    c.error(c.key("world"),
            fmt::format("'world' must be 1 to {}, found {}", ir::kMaxWorld, graph.world));
    return false;
  }
  if (!check_ids(c)) return false;
  check_settings(c);
  check_dims(c);
  check_tensors(c);
  check_ops(c);
  check_constraints(c);
  check_roles(graph, options.internal_ops, report);
  check_order(graph, report);
  return diagnostics.errors() == before;
}

bool check_and_infer(ir::Graph& graph, const CheckOptions& options, ir::Diagnostics& diagnostics) {
  name_ops(graph);
  if (!check_graph(graph, options, diagnostics)) return false;
  order_tensors(graph);
  if (!ops::infer(graph, diagnostics)) return false;
  const int before = diagnostics.errors();
  ops::Messages::match(graph, diagnostics);
  DirectReport report(diagnostics);
  check_homes(graph, report);
  return diagnostics.errors() == before;
}

}  // namespace maco::graph
