// A kernel.cu of several variants: where a graph's `sm_roles` depend on the launch, each choice has
// a kernel of its own, and each launch runs the first whose condition holds.
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

/// Joins the variants into one file, of which a compiler takes variant MACO_VARIANT (from 1). A
/// single variant's file is its kernel.
std::string join_variants(const std::vector<KernelVariant>& variants);

struct VariantsResult {
  /// The file's variants, or its only kernel without a condition. The last variant has no
  /// condition.
  std::vector<KernelVariant> variants;
  std::string error;    // why there are none
  bool edited = false;  // conditions aren't those of the compiler
};
VariantsResult split_variants(std::string_view source);

}  // namespace maco::ir
