// What a pass changed, line by line.
#pragma once

#include <cstddef>
#include <string>

namespace maco::passes {

/// The lines that only `before` has, with "-" in front, and those that only `after` has, with "+",
/// where they stand; the first `most` of them, then how many more there are. Names are stable
/// between passes and tasks keep their order, so that lines are told apart by their text alone;
/// lines that only moved are not told. In linear time.
std::string diff_lines(const std::string& before, const std::string& after, size_t most);

}  // namespace maco::passes
