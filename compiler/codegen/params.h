// The parameters of a call as members of its config in the emitted code.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "compiler/functions/function.h"
#include "ir/program.h"

namespace maco::codegen {

/// The dtype as device code writes it: "float", "bf16", "i32".
std::string_view device_type(ir::DType dtype);

/// What parameter `param` of a call of `function` becomes: one or more lines, each with its end of
/// line. The call is one that functions::check finds nothing wrong with; `packets`: is its operand
/// of that number a temporary with packets?
std::string members(
    const functions::Function& function, const ir::Param& param,
    const std::function<bool(size_t)>& packets = [](size_t) { return false; });

}  // namespace maco::codegen
