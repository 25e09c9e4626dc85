// send: if a collective's operand comes from a matmul on tensor cores, or of few rows
// (in packets), the matmul pushes each tile as it stores it, and the collective is cut as the
// matmul is. No task stands in between, and links work while the next tiles are multiplied. If
// little else communicates, no SMs need be set aside for it (assign-roles).
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/begin_program.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/fuse/uses.h"
#include "compiler/passes/symmetric.h"

namespace maco::passes {

namespace {

// Whether matmuls' tasks will be able to be mates (TileContext::may_mate), whichever SMs
// assign-roles sets aside. Only for whole tiles is it known that their slots have room.
bool may_mate(const ir::Graph& graph, const PassContext& context) {
  const int64_t sms = context.available_sms;
  const auto* roles = std::get_if<ir::Roles>(&graph.sm_roles.value);
  if (!roles || !ops::in_order(graph) || graph.comm_buffer_bytes) return false;
  if (const auto* ranges = std::get_if<std::vector<ir::RoleRange>>(roles)) {
    for (const ir::RoleRange& r : *ranges)
      if (r.end > sms) return false;  // assign-roles refuses this
    ir::Program program;
    begin_program(graph, program, context);
    return ops::may_mate(graph, program, "matmul");
  }
  const auto* counts = std::get_if<ir::RoleCounts>(roles);
  if (!counts || (!counts->compute && !counts->comm)) return sms >= 4 && sms % 2 == 0;
  const int64_t compute = counts->compute.value_or(sms - counts->comm.value_or(0));
  // SMs that communicate come in pairs behind an even number, unless their number is given.
  return compute >= 2 &&
         (counts->comm ? (compute + *counts->comm) % 2 == 0 : compute % 2 == 0 && sms % 2 == 0);
}

// Why the op that makes the collective's operand can't push it, or "".
std::string refuse(const ir::Graph& graph, const ir::Op& op, const PassContext& context,
                   bool may_mate) {
  if (std::string why = ops::refuse_push(graph, op, context.machine, may_mate); !why.empty())
    return why;
  if (is_cut(op) || is_cut(graph[*ops::product_of(graph, op)])) return "one of them is cut already";
  // Arrivals tiles travel while others are multiplied, and beside whatever else runs then.
  if (!overlaps_with_all(graph, op)) return "it isn't to overlap with the product";
  if (is_told_when(op)) return "a constraint says when it starts";
  if (op.overlap_group && std::any_of(graph.ops.begin(), graph.ops.end(), [&](const ir::Op& o) {
        return o.overlap_group && o.overlap_group != op.overlap_group;
      }))
    return "it isn't to overlap with other groups";
  return "";
}

int64_t all_symmetric_bytes(const ir::Graph& graph, PassContext& context) {
  int64_t total = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (ops::find_op(graph.ops[i].kind)->collective)
      total += symmetric_bytes(graph, ir::id_of<ir::OpId>(i), context);
  return total;
}

}  // namespace

bool fold_sends(ir::Graph& graph, PassContext& context) {
  const bool mates = graph.world > 1 && may_mate(graph, context);
  int64_t pushed = 0, bytes = graph.comm_buffer_bytes ? all_symmetric_bytes(graph, context) : 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    ir::Op& op = graph.ops[i];
    if (!ops::find_op(op.kind)->collective || op.in.empty() || graph.world < 2 ||
        ops::moves_as_made(op))
      continue;
    const auto maker = ops::product_of(graph, op);
    if (!maker) continue;
    ir::Op& product = graph[*maker];
    if (std::string why = refuse(graph, op, context, mates); !why.empty()) {
      context.fused(fmt::format("not sent by the product: {}", why), op.name);
      continue;
    }
    const auto bytes_now = [&] { return symmetric_bytes(graph, ir::id_of<ir::OpId>(i), context); };
    const int64_t before = graph.comm_buffer_bytes ? bytes_now() : 0;
    ops::move_as_made(product, op);
    if (graph.comm_buffer_bytes) {  // larger tiles may take more room
      const int64_t more = bytes_now() - before;
      if (more > 0 && bytes + more > *graph.comm_buffer_bytes) {
        op.attrs.erase("pushed"), product.attrs.erase("pushed");
        context.fused("not sent by the product: slots of its tiles take more symmetric memory",
                      op.name);
        continue;
      }
      bytes += more;
    }
    context.fused("sent by the product", op.name);
    ++pushed;
  }
  context.statistics["products that send"] = pushed;
  return true;
}

}  // namespace maco::passes
