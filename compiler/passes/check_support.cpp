// check_support.cpp: what a graph names is obeyed, or refused by name with a reason. This pass
// refuses graph-level keys and ops; tile rules refuse what only they can see.

#include <fmt/format.h>

#include <string>
#include <variant>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/microbatches.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {
ir::Loc at(const ir::Graph& graph, const std::string& key) {
  auto it = graph.key_loc.find(key);
  return it == graph.key_loc.end() ? graph.loc : it->second;
}

bool check(const ir::Graph& graph, ir::Diagnostics& d) {
  const int before = d.errors();
  if (graph.schedule == ir::Schedule::Dynamic)
    d.error(at(graph, "schedule"),
            "schedule 'dynamic' can't be compiled by this version: it has no scheduler CTAs yet; "
            "use 'static'");
  if (graph.backend == ir::Backend::Nccl && graph.world > 1)
    for (const ir::Op& op : graph.ops)
      if (const ops::OpDef* def = ops::find_op(op.kind);
          def && def->message != ops::MessageEnd::None) {
        d.error(op.loc, "messages can't be handed over to NCCL by this version: use backend 'p2p'");
        break;  // each message of the op has another end
      }
  Microbatches::check(graph, d);
  if (std::holds_alternative<std::vector<ir::RoleVariant>>(graph.sm_roles.value))
    d.error(at(graph, "sm_roles"),
            "'sm_roles' with 'when' has a Program for each variant: choose one with --variant");
  for (const ir::Op& op : graph.ops) {
    const ops::OpDef* def = ops::find_op(op.kind);
    if (def && !def->tile)
      d.error(op.loc,
              fmt::format("'{}' can't be compiled by this version: it has no device code yet",
                          op.kind));
    // An op that ignores `dtype` keeps the type of what it writes.
    if (op.dtype && op.out.empty())
      d.error(op.loc,
              fmt::format("'dtype' of '{}' has nothing to convert: it has no result", op.kind));
    for (ir::TensorId out : op.out)
      if (op.dtype && graph[out].dtype != *op.dtype && !(def && def->dtype_of_first))
        d.error(op.loc,
                fmt::format("'dtype' of '{}' is {}, but '{}' is {}", op.kind, ir::name(*op.dtype),
                            graph[out].name, ir::name(graph[out].dtype)));
  }
  return d.errors() == before;
}

}  // namespace

bool check_support(ir::Graph& graph, PassContext& context) {
  for (const ir::Op& op : graph.ops)
    if (const ops::OpDef* def = ops::find_op(op.kind); def && def->warning)
      if (const std::string text = def->warning(graph, op); !text.empty())
        context.diagnostics.warning(op.loc, text);
  return check(graph, context.diagnostics);
}

bool is_supported(const ir::Graph& graph) {
  ir::Diagnostics unseen;
  return check(graph, unseen);
}

}  // namespace maco::passes
