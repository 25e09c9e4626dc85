// The text of a graph as a tree, which has the shape of the JSON document (docs/language.md). The
// DSL is another spelling of the same keys: both are parsed into this tree and printed from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/diagnostics.h"

namespace maco::ir {

/// A value of the document.
struct Raw {
  enum class Kind : uint8_t { Null, Bool, Int, Float, String, List, Map };
  struct Entry;
  Kind kind = Kind::Null;
  Loc loc;  // of the whole value; of the opening bracket for lists and maps
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
  Loc key_loc;
  Raw value;
};

/// How many keys a tensor or an op usually has; room for so many is reserved.
inline constexpr size_t kUsualKeys = 3;

inline const Raw* Raw::find(const std::string& key) const {
  for (const Entry& e : map)
    if (e.key == key) return &e.value;
  return nullptr;
}

}  // namespace maco::ir
