// check.cpp: the parts of the check in order.
#include "compiler/graph/check.h"

#include "compiler/graph/check_parts.h"
#include "compiler/graph/complete.h"
#include "compiler/graph/order.h"
#include "compiler/graph/roles.h"
#include "compiler/ops/collectives/messages.h"
#include "compiler/ops/op.h"
#include "ir/ranks.h"

namespace maco::graph {

namespace {

void check_settings(Check& c) {
  check_name(c, c.graph.name, c.graph.loc, kGraphName);
  if (c.graph.comm_buffer_bytes)
    check_within(c, *c.graph.comm_buffer_bytes, 0, INT64_MAX, c.key("comm_buffer_bytes"),
                 "'comm_buffer_bytes'");
}

}  // namespace

bool check_graph(const ir::Graph& graph, const CheckOptions& options,
                 ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  DirectReport report(diagnostics);
  Check c{graph, options, report};
  // Without it nothing that depends on ranks can be checked.
  if (!check_within(c, graph.world, 1, ir::kMaxWorld, c.key("world"), "'world'")) return false;
  if (!check_ids(c)) return false;
  check_settings(c);
  check_dims(c);
  check_tensors(c);
  check_ops(c);
  check_constraints(c);
  check_roles(c);
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
