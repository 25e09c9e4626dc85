// Files of the checkout and of its build. Their folders are compiled into paths.cpp alone, so that
// a compiler's cache serves all other files in every checkout.
#pragma once

#include <string>

namespace maco::test {

std::string source_path(const std::string& name);  // "examples/graphs" and the like
std::string binary_path(const std::string& name);

}  // namespace maco::test
