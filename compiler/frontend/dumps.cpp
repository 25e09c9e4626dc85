#include "compiler/frontend/dumps.h"

#include <utility>

#include "compiler/frontend/frontend.h"
#include "ir/program_text.h"

namespace maco::frontend {

namespace {

std::optional<ir::Graph> build_dump(const std::optional<Raw>& raw,
                                    const std::vector<std::string>& algorithms,
                                    ir::Diagnostics& diagnostics) {
  if (!raw) return std::nullopt;
  auto collectives = read_collectives(algorithms, diagnostics);
  if (!collectives) return std::nullopt;
  BuildOptions options;
  options.collectives = std::move(*collectives);
  options.open_outputs = options.internal_ops = true;
  return build(*raw, options, diagnostics);
}

}  // namespace

std::optional<ir::Graph> parse_dump(int32_t file, ir::Diagnostics& diagnostics,
                                    const std::vector<std::string>& algorithms) {
  const std::string& text = diagnostics.file_text(file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  return build_dump(json ? parse_json_raw(file, diagnostics) : parse_dsl_raw(file, diagnostics),
                    algorithms, diagnostics);
}

std::optional<ir::Program> parse_program(int32_t file, ir::Diagnostics& diagnostics) {
  return ir::parse_program(file, diagnostics, [](int32_t of, size_t begin, ir::Diagnostics& said) {
    return build_dump(parse_dsl_raw(of, said, begin), {}, said);
  });
}

}  // namespace maco::frontend
