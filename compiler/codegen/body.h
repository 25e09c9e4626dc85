// C++ of a body (ir/body.h): members of a call's config.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "ir/body.h"

namespace maco::codegen {

/// A function of the body's operands:
///   static MACO_FN float apply(float v0, float v1) { ... }
/// It takes each operand as to_acc gives it and returns the last step not yet rounded: the caller
/// stores from_acc<Y>(C::apply(...)), Y being the body's dtype.
std::string apply_member(const ir::BodyParam& body);

/// For a device function that reads all operands itself: `operands`, which says how; `moves`, true
/// if the result is operand 0 as it is; `apply`.
std::string element_members(const ir::BodyParam& body);

/// For one that has computed %0 and calls finish(args, row, col, sum) for what becomes of it:
/// `apply` and `finish`. %1 is operand `first` of the call, %2 the next one; `packets`: is its
/// operand of that number a temporary with packets?
std::string finish_members(const ir::BodyParam& body, size_t first,
                           const std::function<bool(size_t)>& packets);

}  // namespace maco::codegen
