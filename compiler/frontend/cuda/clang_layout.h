// Lays out the text of a user's kernel with Clang's formatter.
#pragma once

#include <string>

namespace maco::frontend::cuda {

/// `code` formatted by the rules of .clang-format. It stays as it is if its tokens would change, or
/// if the formatter would take long.
std::string laid_out(const std::string& code);

}  // namespace maco::frontend::cuda
