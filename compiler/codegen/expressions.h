// Expressions of a graph as source of device code.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/expr.h"

namespace maco::codegen {

/// An integer literal of 64 bits.
std::string source_of(int64_t value);
/// An expression of i64 that is `e`; `variable` gives the source of a variable.
std::string source_of(const ir::Expr& e,
                      const std::function<std::string(std::string_view)>& variable);

}  // namespace maco::codegen
