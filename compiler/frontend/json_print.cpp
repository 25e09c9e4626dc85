// Prints a graph as canonical JSON: one line for each tensor, op and other named thing.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/frontend.h"
#include "ir/check.h"
#include "ir/to_raw.h"

namespace maco::frontend {

namespace {

/// On one line.
std::string print(const Raw& value) {
  std::string out;
  switch (value.kind) {
    case Raw::Kind::Bool: return value.boolean ? "true" : "false";
    case Raw::Kind::Int: return std::to_string(value.integer);
    case Raw::Kind::Float: return ir::print_float(value.number);
    case Raw::Kind::String: return ir::print_quoted(value.text);
    case Raw::Kind::List:
      for (const Raw& item : value.list) out += (out.empty() ? "" : ", ") + print(item);
      return "[" + out + "]";
    case Raw::Kind::Map:
      for (const Raw::Entry& e : value.map)
        out += (out.empty() ? "" : ", ") + ir::print_quoted(e.key) + ": " + print(e.value);
      return "{" + out + "}";
    case Raw::Kind::Null: break;
  }
  ir::internal_error(__FILE__, __LINE__, "a graph has no null values");
}

/// A line for each entry, with the values in one column.
std::string print_entries(const Raw& map) {
  size_t width = 0;
  for (const Raw::Entry& e : map.map) width = std::max(width, ir::print_quoted(e.key).size() + 1);
  std::string out;
  for (const Raw::Entry& e : map.map)
    out += fmt::format("{}    {:{}} {}", out.empty() ? "" : ",\n", ir::print_quoted(e.key) + ":",
                       width, print(e.value));
  return out.empty() ? "{}" : "{\n" + out + "\n  }";
}

/// A line for each item.
std::string print_items(const Raw& list) {
  std::string out;
  for (const Raw& item : list.list) out += (out.empty() ? "    " : ",\n    ") + print(item);
  return out.empty() ? "[]" : "[\n" + out + "\n  ]";
}

/// A line for each statement of each collective.
std::string print_collectives(const Raw& list) {
  std::string out;
  for (const Raw& collective : list.list) {
    std::string keys;
    for (const Raw::Entry& e : collective.map) {
      keys += (keys.empty() ? "" : ", ") + ir::print_quoted(e.key) + ": ";
      if (e.key != "ops") {
        keys += print(e.value);
        continue;
      }
      std::string ops;
      for (const Raw& op : e.value.list) ops += (ops.empty() ? "      " : ",\n      ") + print(op);
      keys += ops.empty() ? "[]" : "[\n" + ops + "\n    ]";
    }
    out += (out.empty() ? "    {" : ",\n    {") + keys + "}";
  }
  return "[\n" + out + "\n  ]";
}

}  // namespace

std::string print_json(const ir::Graph& graph) {
  const Raw root = ir::to_raw(graph);
  std::string out;
  for (const Raw::Entry& e : root.map) {
    const bool entries = e.key == "tensors" || e.key == "dims";
    const bool items = e.key == "ops" || e.key == "phases" || e.key == "overlap_regions";
    out += fmt::format("{}  {}: {}", out.empty() ? "" : ",\n", ir::print_quoted(e.key),
                       entries                  ? print_entries(e.value)
                       : items                  ? print_items(e.value)
                       : e.key == "collectives" ? print_collectives(e.value)
                                                : print(e.value));
  }
  return "{\n" + out + "\n}\n";
}

}  // namespace maco::frontend
