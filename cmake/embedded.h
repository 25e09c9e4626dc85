// A source file that is part of the program (cmake/MacoEmbed.cmake).
#pragma once

#include <cstddef>

namespace maco {
struct EmbeddedFile {
  const char* name;  // path from the project's root
  const char* text;
};
}  // namespace maco
