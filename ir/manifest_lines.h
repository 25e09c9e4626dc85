// What the printer and the parser of the `//@maco` lines agree on. Private to ir.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/manifest.h"

namespace maco::ir {

inline constexpr std::string_view kManifestPrefix = "//@maco ";
inline constexpr std::string_view kBareManifestPrefix = "//@maco";  // an empty line after trimming
/// The key with the checksums of all other keys. The code was compiled for the values of most keys:
/// with another value it could write anywhere, so edits must be found.
inline constexpr const char* kManifestSums = "sums";

/// All other keys, in their order.
std::vector<std::string> manifest_keys();
/// The checksum of a key's value, given as compact JSON in ASCII.
std::string manifest_sum(std::string_view value);

/// Whether the line, without its end, is one of the manifest's.
inline bool is_manifest_line(std::string_view line) {
  return line.starts_with(kManifestPrefix) || line == kBareManifestPrefix;
}

/// Calls `visit` with each line, without its end.
template <class Visit>
void for_each_line(std::string_view source, Visit visit) {
  while (!source.empty()) {
    size_t end = source.find('\n');
    std::string_view line = source.substr(0, end);
    source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line);
  }
}

}  // namespace maco::ir
