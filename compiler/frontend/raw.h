// The tree into which both frontends parse. It has the shape of the JSON document (graph-format).
// The DSL is another spelling of the same keys, so that build.h validates and builds the graph once
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
  /// String: the text. In both spellings, expressions are strings ("world * 4"), and so are words
  /// (sum) and names. `text_column_shift`: by how many bytes the text starts behind loc.column (1
  /// for a quoted string).
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

/// How many keys a tensor or an op usually has; room for so many is reserved.
inline constexpr size_t kUsualKeys = 3;

inline const Raw* Raw::find(const std::string& key) const {
  for (const Entry& e : map)
    if (e.key == key) return &e.value;
  return nullptr;
}

}  // namespace maco::frontend
