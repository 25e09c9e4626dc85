#include "compiler/frontend/frontend.h"

namespace maco::frontend {

std::optional<ir::Graph> parse_graph(int32_t file, ir::Diagnostics& diagnostics) {
  std::string_view text = diagnostics.file_text(file);
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);  // a byte-order mark
  const size_t first = text.find_first_not_of(" \t\r\n");
  // A name that says JSON is believed, so that a broken file's errors are JSON's.
  const bool json = (first != std::string_view::npos && text[first] == '{') ||
                    diagnostics.file_name(file).ends_with(".json");
  return json ? parse_json(file, diagnostics) : parse_dsl(file, diagnostics);
}

}  // namespace maco::frontend
