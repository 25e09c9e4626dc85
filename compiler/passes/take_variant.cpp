// take_variant.cpp: of the variants of `sm_roles` it keeps the one that is asked for, or the only
// one. Each kernel has one choice of roles; a kernel.cu of several variants joins their kernels.
#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

bool take_variant(ir::Graph& graph, int64_t variant, ir::Diagnostics& diagnostics) {
  const auto* variants = std::get_if<std::vector<ir::RoleVariant>>(&graph.sm_roles.value);
  const bool alone = variants && variants->size() == 1;  // 'else'
  if (variant == 0 && !alone) return true;
  const auto n = static_cast<int64_t>(variants ? variants->size() : 0);
  if (variant > n) {
    diagnostics.error(
        graph.loc,
        n == 0 ? "'sm_roles' of this graph has no variants"
               : fmt::format("'sm_roles' has {} variants: there is no variant {}", n, variant));
    return false;
  }
  ir::Roles taken = (*variants)[alone ? 0 : static_cast<size_t>(variant - 1)].roles;
  graph.sm_roles.value = std::move(taken);
  return true;
}

bool take_variant(ir::Graph& graph, PassContext& context) {
  return take_variant(graph, context.variant, context.diagnostics);
}

}  // namespace maco::passes
