#include "compiler/passes/fuse/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace maco::passes {

Fold::Fold(ir::Graph& graph, PassContext& context, std::string kind, std::string where,
           bool made_by)
    : graph_(graph),
      context_(context),
      uses_(graph),
      kind_(std::move(kind)),
      where_(std::move(where)),
      made_by_(made_by) {}

void Fold::run() {
  std::vector<bool> dead(graph_.ops.size(), false);
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const ir::Op& op = graph_.ops[i];
    if (op.kind != kind_ || !concerns(op)) continue;
    if (const std::string why = refuse(op); !why.empty()) {
      context_.fused(fmt::format("{} stays: {}", kind_, why), op.name);
      continue;
    }
    context_.fused(
        fmt::format("{} in the {} {}", kind_, where_, made_by_ ? "before it" : "that read it"),
        op.name);
    fold(op);
    dead[i] = true;
  }
  context_.statistics["ops fused away"] += std::count(dead.begin(), dead.end(), true);
  erase_ops(graph_, dead);
}

}  // namespace maco::passes
