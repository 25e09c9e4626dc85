#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "compiler/frontend/frontend.h"
#include "ir/graph_text.h"

namespace maco::frontend {

namespace {

bool is_json(int32_t file, const ir::Diagnostics& diagnostics) {
  std::string_view text = diagnostics.file_text(file);
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);  // a byte-order mark
  const size_t first = text.find_first_not_of(" \t\r\n");
  // A file whose name says JSON is read as JSON, so that a broken file gives JSON errors.
  return (first != std::string_view::npos && text[first] == '{') ||
         diagnostics.file_name(file).ends_with(".json");
}

}  // namespace

std::optional<ir::Graph> parse_graph(int32_t file, ir::Diagnostics& diagnostics,
                                     const std::vector<Raw>& collectives) {
  return is_json(file, diagnostics) ? parse_json(file, diagnostics, collectives)
                                    : parse_dsl(file, diagnostics, collectives);
}

std::string print_dsl(const ir::Graph& graph) { return ir::print(graph); }

std::optional<Raw> parse_collectives(int32_t file, ir::Diagnostics& diagnostics) {
  if (!is_json(file, diagnostics)) return parse_dsl_collectives(file, diagnostics);
  auto raw = parse_json_raw(file, diagnostics);
  if (!raw) return std::nullopt;
  const Raw* list = raw->kind == Raw::Kind::Map ? raw->find("collectives") : nullptr;
  if (list != nullptr && list->kind == Raw::Kind::List) return raw;
  diagnostics.error(raw->loc, "expected a map with 'collectives', a list");
  return std::nullopt;
}

std::optional<std::vector<Raw>> read_collectives(const std::vector<std::string>& paths,
                                                 ir::Diagnostics& diagnostics) {
  std::vector<Raw> all;
  bool good = true;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(in), {});
    if (!in.is_open() || in.bad()) {
      diagnostics.error({}, fmt::format("can't read '{}'", path));
      good = false;
      continue;
    }
    auto raw = parse_collectives(diagnostics.add_file(path, std::move(text)), diagnostics);
    good = good && raw;
    if (raw) all.push_back(std::move(*raw));
  }
  if (!good) return std::nullopt;
  return all;
}

}  // namespace maco::frontend
