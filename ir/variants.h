// A kernel.cu of several variants: where `sm_roles` of a graph depends on a launch, each choice has
// a kernel of its own, and the first whose condition holds runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

namespace maco::ir {

struct KernelVariant {
  std::optional<Expr> condition;  // over dims and scalars; nothing: else
  std::string kernel;             // a kernel.cu with a manifest of its own
};

/// One file of them, of which a compiler takes variant MACO_VARIANT (from 1). One alone is its
/// kernel.
std::string join_variants(const std::vector<KernelVariant>& variants);

struct VariantsResult {
  /// Those of the file, or its only kernel without a condition. The last has none.
  std::vector<KernelVariant> variants;
  std::string error;    // why there are none
  bool edited = false;  // conditions aren't those of the compiler
};
VariantsResult split_variants(std::string_view source);

}  // namespace maco::ir
