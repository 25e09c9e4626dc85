// A graph, in JSON or in the language: it is printed in both, and each text is read as the same
// graph.
#include "compiler/frontend/frontend.h"
#include "tests/inputs/target.h"

namespace {

using namespace maco;

void check_text(const ir::Graph& graph, const std::string& text, const char* what) {
  ir::Diagnostics diagnostics;
  const auto again = frontend::parse_graph(diagnostics.add_file("printed", text), diagnostics);
  if (!again) std::fputs(diagnostics.render().c_str(), stderr);
  inputs::require(again.has_value(), what);
  inputs::require(frontend::print_json(*again) == frontend::print_json(graph), what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_graph(
      diagnostics.add_file("input", inputs::text_of(data, size)), diagnostics);
  inputs::require(graph.has_value() != diagnostics.has_errors(), "an error is a graph less");
  inputs::require(!diagnostics.has_errors() || !diagnostics.render(false, 20).empty(),
                  "an error has a text");
  if (!graph) return 0;
  check_text(*graph, frontend::print_json(*graph), "printed JSON reads as the same graph");
  check_text(*graph, frontend::print_dsl(*graph), "a printed graph reads as the same");
  return 0;
}
