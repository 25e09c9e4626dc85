// choose_collectives.cpp: an algorithm for each collective whose `algorithm` is auto; one that can't be had is refused.
//
// One-shot sends everything to everybody, (world - 1) times the tensor, in one hop; two-shot sends twice (world - 1) / world of it in two
// hops. The border lies where the extra bytes cost as much as the extra hop: about 1.3 us at a link's 370 GB/s, half a megabyte.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/op.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {
constexpr int64_t kOneShotBytes = 512 * 1024;

// What the op's `algorithm` says; nothing if it takes none.
std::optional<std::string> algorithm_of(const ir::Op& op) {
  const auto& attrs = ops::find_op(op.kind)->attrs;
  if (std::none_of(attrs.begin(), attrs.end(), [](const ops::AttrSpec& a) { return a.name == "algorithm"; })) return std::nullopt;
  const auto it = op.attrs.find("algorithm");
  return it == op.attrs.end() ? "auto" : std::get<std::string>(it->second.value);
}

// Why it can't be had; empty if it can.
std::string refusal(const ir::Op& op, const std::string& algorithm) {
  if (algorithm == "nccl" || algorithm == "ring")
    return fmt::format("algorithm '{}' of '{}' can't be compiled by this version; use 'auto'{}", algorithm, op.kind,
                       op.kind == "allreduce" ? ", 'oneshot' or 'twoshot'" : " or 'oneshot'");
  if (algorithm == "twoshot" && op.kind != "allreduce")
    return fmt::format("algorithm 'twoshot' is a reduction followed by a gather, which '{}' isn't; use 'auto' or 'oneshot'", op.kind);
  return "";
}

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
    const auto algorithm = algorithm_of(op);
    if (!algorithm) continue;
    if (*algorithm == "auto") {
      op.attrs["algorithm"] = {choose(graph, op), op.loc};
    } else if (const std::string why = refusal(op, *algorithm); !why.empty()) {
      context.diagnostics.error(op.attrs["algorithm"].loc, why);
      ok = false;
    }
  }
  return ok;
}

bool has_algorithms(const ir::Graph& graph) {
  return std::all_of(graph.ops.begin(), graph.ops.end(), [](const ir::Op& op) {
    const auto algorithm = algorithm_of(op);
    return !algorithm || (*algorithm != "auto" && refusal(op, *algorithm).empty());
  });
}

}  // namespace maco::passes
