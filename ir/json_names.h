// Names in JSON texts, which nlohmann's parser silently takes twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace maco::ir {

struct JsonNames {
  bool is_json = false;
  size_t wrong_at = 0;  // the byte at which it isn't
  std::string twice;    // the last name that its object had already; "": there is none
};

/// Looks at all objects of the text, or at `depth` levels of objects and lists: 1 is the outermost.
JsonNames names_of_json(std::string_view text, size_t depth = SIZE_MAX);

}  // namespace maco::ir
