// check_support.cpp: what a graph names is obeyed or refused by name with a reason. This pass does
// the refusing for graph-level keys and for ops; tile rules refuse what only they can see.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/op.h"
#include "compiler/passes/microbatches.h"
#include "compiler/passes/passes.h"
#include "ir/cuda_op.h"

namespace maco::passes {

namespace {
ir::Loc at(const ir::Graph& graph, const std::string& key) {
  auto it = graph.key_loc.find(key);
  return it == graph.key_loc.end() ? graph.loc : it->second;
}

// Blocks that may all write the same can't run side by side.
void warn_of_whole(const ir::Graph& graph, const ir::Op& op, ir::Diagnostics& d) {
  const ir::CudaOp kernel = ir::cuda_op(graph, op);
  if (std::all_of(kernel.grid.begin(), kernel.grid.end(),
                  [](const ir::Expr& e) { return e.constant() == 1; }))
    return;
  for (const ir::TensorId id : op.out) {
    const std::string& name = graph[id].name;
    const bool updated = std::find(op.in.begin(), op.in.end(), id) != op.in.end();
    const bool no_writes = !ir::CudaOp::find(kernel.writes, name);
    if (!no_writes && !(updated && !ir::CudaOp::find(kernel.reads, name))) continue;
    d.warning(op.loc, fmt::format("the blocks of '{}' all run on one SM: '{}' doesn't "
                                  "say what each of them touches of '{}'",
                                  op.name, no_writes ? "writes" : "reads", name));
    return;
  }
}

bool check(const ir::Graph& graph, ir::Diagnostics& d) {
  const int before = d.errors();
  if (graph.schedule == ir::Schedule::Dynamic)
    d.error(at(graph, "schedule"),
            "schedule 'dynamic' can't be compiled by this version: it has no scheduler CTAs yet; "
            "use 'static'");
  if (graph.backend == ir::Backend::Nccl && graph.world > 1)
    for (const ir::Op& op : graph.ops)
      if (op.kind == "send" || op.kind == "recv") {
        d.error(op.loc, "messages can't be handed over to NCCL by this version: use backend 'p2p'");
        break;  // each has another end
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
    // An op that takes no notice of `dtype` keeps the type of what it writes.
    if (op.dtype && op.out.empty())
      d.error(op.loc,
              fmt::format("'dtype' of '{}' has nothing to convert: it has no result", op.kind));
    for (ir::TensorId out : op.out)
      // Of attention_step it is that of the first result; the others have their inputs'.
      if (op.dtype && graph[out].dtype != *op.dtype && op.kind != "attention_step")
        d.error(op.loc,
                fmt::format("'dtype' of '{}' is {}, but '{}' is {}", op.kind, ir::name(*op.dtype),
                            graph[out].name, ir::name(graph[out].dtype)));
  }
  return d.errors() == before;
}

}  // namespace

bool check_support(ir::Graph& graph, PassContext& context) {
  for (const ir::Op& op : graph.ops)
    if (op.kind == "cuda") warn_of_whole(graph, op, context.diagnostics);
  return check(graph, context.diagnostics);
}

bool is_supported(const ir::Graph& graph) {
  ir::Diagnostics unseen;
  return check(graph, unseen);
}

}  // namespace maco::passes
