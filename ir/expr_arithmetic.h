// What the operators of ir::Expr mean on numbers. Private to ir.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/expr.h"

namespace maco::ir {

/// `a kind b` (b is ignored by the unary ones), or nothing on overflow and division by zero.
std::optional<int64_t> apply(Expr::Kind kind, int64_t a, int64_t b);

}  // namespace maco::ir
