// choose_collectives.cpp: an algorithm for each collective whose `algorithm` is auto; one that can't be had is refused.
//
// One-shot sends everything to everybody, (world - 1) times the tensor, in one hop; two-shot sends twice (world - 1) / world of it in two
// hops. The border lies where the extra bytes cost as much as the extra hop: about 1.3 us at a link's 370 GB/s, half a megabyte.

#include <fmt/format.h>

#include "compiler/ops/op.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {
constexpr int64_t kOneShotBytes = 512 * 1024;

std::string choose(const ir::Graph& graph, const ir::Op& op) {
  if (op.kind != "allreduce") return "oneshot";
  const ir::Tensor& x = graph[op.in[0]];
  const int64_t bytes = ir::max_elements(graph, x.shape) * ir::size_of(x.dtype);
  return bytes * (graph.world - 1) <= kOneShotBytes || graph.world == 2 ? "oneshot" : "twoshot";
}
}  // namespace

bool choose_collectives(ir::Graph& graph, Context& context) {
  bool ok = true;
  for (ir::Op& op : graph.ops) {
    const ops::OpDef* def = ops::find_op(op.kind);
    bool takes = false;
    for (const ops::AttrSpec& a : def->attrs) takes = takes || a.name == "algorithm";
    if (!takes) continue;
    auto it = op.attrs.find("algorithm");
    const std::string wanted = it == op.attrs.end() ? "auto" : std::get<std::string>(it->second.value);
    if (wanted == "auto") {
      op.attrs["algorithm"] = {choose(graph, op), op.loc};
    } else if (wanted == "nccl" || wanted == "ring") {
      context.diagnostics.error(it->second.loc,
                                fmt::format("algorithm '{}' of '{}' can't be compiled by this version; use 'auto'{}", wanted, op.kind,
                                            op.kind == "allreduce" ? ", 'oneshot' or 'twoshot'" : " or 'oneshot'"));
      ok = false;
    } else if (wanted == "twoshot" && op.kind != "allreduce") {
      context.diagnostics.error(
          it->second.loc,
          fmt::format("algorithm 'twoshot' is a reduction followed by a gather, which '{}' isn't; use 'auto' or 'oneshot'", op.kind));
      ok = false;
    }
  }
  return ok;
}

}  // namespace maco::passes
