// The priority of an op's tasks: which of several ready tasks goes first.
#pragma once

#include <cstdint>
#include <string_view>

namespace maco::ir {

enum class Priority : uint8_t { Low, Normal, High };
inline std::string_view name(Priority priority) {
  constexpr std::string_view names[] = {"low", "normal", "high"};
  return names[static_cast<size_t>(priority)];
}

}  // namespace maco::ir
