// The settings that must be the same in all processes that run the ranks of one kernel, and which
// of them differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/host/session.h"

namespace maco::runtime {

/// "--seed" is "2".
struct Setting {
  std::string name, value;
  /// Whether it follows from earlier settings: if one of them differs, this one isn't mentioned.
  bool follows = false;
  friend bool operator==(const Setting&, const Setting&) = default;
};
/// In the order in which differences are reported. Names are unique.
using Settings = std::vector<Setting>;

/// A session's settings: its kernel's graph and options, the kernel itself, and what `options` say
/// about all ranks. Time-outs, delays and what is printed may differ.
Settings settings_of(const std::string& kernel_source, const SessionOptions& options);

/// Settings as text for other processes, and back; nothing if another version wrote the text.
std::string pack(const Settings& settings);
std::optional<Settings> unpack(const std::string& text);

/// told[r] are the settings of rank r. Returns "--seed is 2 on ranks 0 and 2, 3 on rank 1; ...", or
/// "" if all are the same. A setting that a rank lacks is "not given" there.
std::string differences(const std::vector<Settings>& told);

/// "rank 1", "ranks 0, 2 and 3".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace maco::runtime
