// The parameters of a call as members of its config in the emitted code.
#pragma once

#include <string>
#include <string_view>

#include "ir/program.h"

namespace maco::codegen {

/// The dtype as device code writes it: "float", "bf16", "i32".
std::string_view device_type(ir::DType dtype);

/// What parameter `param` of `call` becomes: one or more lines, each with its end of line.
std::string members(const ir::Call& call, const ir::Param& param);

}  // namespace maco::codegen
