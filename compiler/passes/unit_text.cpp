#include "compiler/passes/unit_text.h"

#include "compiler/frontend/frontend.h"
#include "ir/program_text.h"

namespace maco::passes {

std::string to_text(const Unit& unit) {
  if (const auto* graph = std::get_if<ir::Graph>(&unit)) return frontend::print_dsl(*graph);
  return ir::print(std::get<ir::Program>(unit));
}

std::optional<Unit> parse_unit(int32_t file, ir::Diagnostics& diagnostics,
                               const std::vector<std::string>& algorithms) {
  const std::string& text = diagnostics.file_text(file);
  if (ir::is_program_text(text)) {
    auto program = ir::parse_program(file, diagnostics);
    if (!program) return std::nullopt;
    return Unit(std::move(*program));
  }
  auto graph = parse_graph_unit(file, diagnostics, algorithms);
  if (!graph) return std::nullopt;
  return Unit(std::move(*graph));
}

std::optional<ir::Graph> parse_graph_unit(int32_t file, ir::Diagnostics& diagnostics,
                                          const std::vector<std::string>& algorithms) {
  const std::string& text = diagnostics.file_text(file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  const auto raw = json ? frontend::parse_json_raw(file, diagnostics)
                        : frontend::parse_dsl_raw(file, diagnostics);
  if (!raw) return std::nullopt;
  auto collectives = frontend::read_collectives(algorithms, diagnostics);
  if (!collectives) return std::nullopt;
  frontend::BuildOptions options;
  options.collectives = std::move(*collectives);
  options.open_outputs = options.internal_ops = true;
  return frontend::build(*raw, options, diagnostics);
}

}  // namespace maco::passes
