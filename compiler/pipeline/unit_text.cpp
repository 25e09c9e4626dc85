#include "compiler/pipeline/unit_text.h"

#include "compiler/frontend/dumps.h"
#include "ir/graph_text.h"
#include "ir/program_text.h"

namespace maco::passes {

std::string to_text(const Unit& unit) {
  return std::visit([](const auto& what) { return ir::print(what); }, unit);
}

std::optional<Unit> parse_unit(int32_t file, ir::Diagnostics& diagnostics,
                               const std::vector<std::string>& algorithms) {
  if (ir::is_program_text(diagnostics.file_text(file))) {
    auto program = frontend::parse_program(file, diagnostics);
    if (!program) return std::nullopt;
    return Unit(std::move(*program));
  }
  auto graph = frontend::parse_dump(file, diagnostics, algorithms);
  if (!graph) return std::nullopt;
  return Unit(std::move(*graph));
}

}  // namespace maco::passes
