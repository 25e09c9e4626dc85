// Lines of the text form of Programs, as its grammar (ir/program_syntax.h) divides them: fields
// that have types, and lists of items. Nothing here knows what a line means.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace maco::proofs {

/// A piece [begin, end) of a line, any other of the same type may stand in its place.
struct Field {
  size_t begin = 0, end = 0;  // equal: an option that is absent
  std::string type;           // "number", "word role", "option wait lag", "region"
  std::string key;            // its place in the grammar: "task wait lag"
};

/// Consecutive items of one type.
struct List {
  std::string type;       // "access"
  std::string separator;  // between two items
  std::vector<std::pair<size_t, size_t>> items;
  size_t begin = 0, end = 0;  // with what goes when the last item goes: "after(" and ")"
  // The list of which this list is an item, and which item; -1: none. When the last item of this
  // list goes, this list goes too.
  int parent = -1;
  size_t item = 0;
};

struct Line {
  std::string text;
  std::string entity;  // its first word
  std::vector<Field> fields;
  std::vector<List> lists;
};

/// Reads a line. An unknown entity, or a line that doesn't fit the grammar, becomes fields by
/// position: numbers, words and strings.
Line read_line(std::string text);

}  // namespace maco::proofs
