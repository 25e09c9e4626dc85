// What the processes that run the ranks of one kernel must have been told alike, and which of it
// they weren't.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/host/session.h"

namespace maco::runtime {

/// "--seed" is "2".
struct Setting {
  std::string name, value;
  /// It follows from those before: if one of them differs, nothing is said of this one.
  bool follows = false;
  friend bool operator==(const Setting&, const Setting&) = default;
};
/// In the order in which differences are told. Names are unique.
using Settings = std::vector<Setting>;

/// Of a session: its kernel's graph and options, the kernel itself, and what `options` say of all
/// ranks. Time-outs, delays and what is printed may differ.
Settings settings_of(const std::string& kernel_source, const SessionOptions& options);

/// As text, for other processes, and back; nothing if another version wrote it.
std::string pack(const Settings& settings);
std::optional<Settings> unpack(const std::string& text);

/// told[r] is what rank r was told: "--seed is 2 on ranks 0 and 2, 3 on rank 1; ...", or "" if all
/// were told the same. A setting that a rank doesn't have is "not given" there.
std::string differences(const std::vector<Settings>& told);

/// "rank 1", "ranks 0, 2 and 3".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace maco::runtime
