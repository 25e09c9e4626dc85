#include "maco/version.h"

#include <string_view>

namespace maco {

std::string_view version() { return MACO_VERSION; }

}  // namespace maco
