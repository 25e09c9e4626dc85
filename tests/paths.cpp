#include "tests/paths.h"

namespace maco::test {

std::string source_path(const std::string& name) { return MACO_SOURCE_DIR "/" + name; }
std::string binary_path(const std::string& name) { return MACO_BINARY_DIR "/" + name; }

}  // namespace maco::test
