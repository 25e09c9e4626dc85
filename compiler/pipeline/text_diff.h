// What a pass changed, line by line.
#pragma once

#include <cstddef>
#include <string>

namespace maco::passes {

/// The lines that only `before` has, with "-" in front, and those that only `after` has, with "+",
/// in their order; the first `most` of them, then how many more there are. Names are stable between
/// passes and tasks keep their order, so that comparing the lines' texts is enough; lines that only
/// moved are not shown. Takes linear time.
std::string diff_lines(const std::string& before, const std::string& after, size_t most);

}  // namespace maco::passes
