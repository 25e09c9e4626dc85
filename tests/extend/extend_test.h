// What the tests of the extension share.
#pragma once

#include <string>

namespace maco::test {

/// Registers all that the extension has, once.
void know_it_all();

/// What is said of a graph that can't be compiled.
std::string refused(const std::string& text);

}  // namespace maco::test
