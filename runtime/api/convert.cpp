#include "runtime/api/convert.h"

#include <utility>

namespace maco {

static_assert(static_cast<int>(DType::U8) == static_cast<int>(ir::DType::U8) &&
                  static_cast<int>(DType::BF16) == static_cast<int>(ir::DType::BF16),
              "the two lists of types are one");

int64_t size_of(DType type) { return ir::size_of(ir_type(type)); }
std::string_view name_of(DType type) { return ir::name(ir_type(type)); }

TensorInfo tensor_info(std::string name, TensorKind kind, ir::DType type,
                       const std::vector<ir::Expr>& shape, int64_t max_elements,
                       const ir::Lookup& most) {
  TensorInfo info{std::move(name), kind, public_type(type), {}, max_elements * ir::size_of(type)};
  for (const ir::Expr& extent : shape)
    info.shape.push_back(ir::evaluate(extent, most).value.value_or(0));
  return info;
}

std::vector<Diagnostic> public_diagnostics(const ir::Diagnostics& diagnostics, int max_warnings) {
  std::vector<Diagnostic> list;
  for (const ir::Diagnostic& d : diagnostics.limited(max_warnings)) {
    Diagnostic& made = list.emplace_back();
    made.severity = static_cast<Diagnostic::Severity>(d.severity);
    made.message = d.message;
    if (d.loc.file < 0) continue;
    made.file = diagnostics.file_name(d.loc.file);
    made.line = d.loc.line;
    made.column = d.loc.column;
  }
  return list;
}

Error graph_error(const ir::Diagnostics& diagnostics, int max_warnings) {
  std::string text = diagnostics.render(false, 0, max_warnings);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return {ErrorCode::InvalidGraph, std::move(text), public_diagnostics(diagnostics, max_warnings)};
}

Error error(ErrorCode code, std::string message) { return {code, std::move(message), {}}; }

Status status_of(const runtime::Status& status, ErrorCode code) {
  if (status) return {};
  Error made = error(code, status.message);
  if (const auto& s = status.stopped)
    made.stopped = StoppedTask{s->rank, s->task, s->event, s->expected, s->seen};
  return made;
}

}  // namespace maco
