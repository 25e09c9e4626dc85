#include "compiler/passes/options.h"

#include <fmt/format.h>

namespace maco::passes {

std::optional<PassContext> make_context(const PipelineOptions& options,
                                        ir::Diagnostics& diagnostics) {
  const cost::Machine* machine = cost::find_machine(options.target, options.board, diagnostics);
  if (!machine) return std::nullopt;
  if (options.sms > machine->sms) {
    diagnostics.error({}, fmt::format("a rank can't use {} SMs: board '{}' has {}", options.sms,
                                      machine->board, machine->sms));
    return std::nullopt;
  }
  std::optional<PassContext> context(std::in_place, diagnostics, *machine);
  context->load_ahead = options.load_ahead;
  context->algorithm_witness = options.algorithm_witness;
  context->available_sms = options.sms > 0 ? options.sms : machine->sms;
  return context;
}

std::optional<PassContext> make_context(const Unit& unit, const PipelineOptions& options,
                                        ir::Diagnostics& diagnostics) {
  PipelineOptions own = options;
  if (const auto* program = std::get_if<ir::Program>(&unit)) {
    own.target = program->target;
    own.board = program->board;
  }
  return make_context(own, diagnostics);
}

}  // namespace maco::passes
