// The Catch2 of this machine, version 2 or 3.
#pragma once

#include <string>

#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
namespace maco::test {
using Catch::Matchers::Contains;  // a string that holds another
}
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;  // where version 2 has it
namespace maco::test {
inline auto Contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
}  // namespace maco::test
#endif
