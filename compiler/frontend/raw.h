// The tree that both frontends parse into. Its shape is that of the JSON document (graph-format):
// the DSL is another spelling of the same keys, so that build.h validates and builds the graph once
// for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/diagnostics.h"

namespace maco::frontend {

struct Raw {
  enum class Kind : uint8_t { Null, Bool, Int, Float, String, List, Map };
  struct Entry;
  Kind kind = Kind::Null;
  ir::Loc loc;  // of the whole value; of the opening bracket for lists and maps
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // Float
  /// String: the text. Expressions are strings in both spellings ("world * 4"); so are words (sum)
  /// and names. `text_column_shift`: how many bytes after loc.column the text starts (1 for a
  /// quoted string).
  std::string text;
  int32_t text_column_shift = 0;
  std::vector<Raw> list;
  std::vector<Entry> map;  // in order of writing; duplicates kept
  const Raw* find(const std::string& key) const;
};

struct Raw::Entry {
  std::string key;
  ir::Loc key_loc;
  Raw value;
};

/// How many keys a tensor or an op has, as a rule: room for so many is made at once.
inline constexpr size_t kUsualKeys = 3;

inline const Raw* Raw::find(const std::string& key) const {
  for (const Entry& e : map)
    if (e.key == key) return &e.value;
  return nullptr;
}

}  // namespace maco::frontend
