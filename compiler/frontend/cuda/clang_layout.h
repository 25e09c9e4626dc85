// How Clang's formatter lays out what is written of a user's kernel.
#pragma once

#include <string>

namespace maco::frontend::cuda {

/// `code` by the rules of .clang-format; as it is where its tokens would not stay the same, or
/// where it would take the formatter long.
std::string laid_out(const std::string& code);

}  // namespace maco::frontend::cuda
