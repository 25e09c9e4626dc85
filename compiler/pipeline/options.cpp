#include "compiler/pipeline/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes/fuse/rules.h"
#include "ir/diagnostics.h"

namespace maco::passes {

namespace {

// Checks that `fuse` has such rules.
bool check_rules(const std::vector<std::string>& names, ir::Diagnostics& diagnostics) {
  const std::vector<std::string> rules = fuse_rule_names();
  for (const std::string& name : names) {
    if (std::find(rules.begin(), rules.end(), name) != rules.end()) continue;
    diagnostics.error({}, fmt::format("'{}' is no rule of 'fuse'{}; there are {}", name,
                                      ir::did_you_mean(name, rules), fmt::join(rules, ", ")));
    return false;
  }
  return true;
}

}  // namespace

std::optional<PassContext> make_context(const PipelineOptions& options,
                                        ir::Diagnostics& diagnostics) {
  const cost::Machine* machine = cost::find_machine(options.target, options.board, diagnostics);
  if (!machine) return std::nullopt;
  if (options.sms > machine->sms) {
    diagnostics.error({}, fmt::format("a rank can't use {} SMs: board '{}' has {}", options.sms,
                                      machine->board, machine->sms));
    return std::nullopt;
  }
  if (!check_rules(options.no_fuse, diagnostics)) return std::nullopt;
  std::optional<PassContext> context(std::in_place, diagnostics, *machine);
  context->load_ahead = options.load_ahead;
  context->algorithm_witness = options.algorithm_witness;
  const std::vector<std::string> rules = fuse_rule_names();
  const std::vector<std::string>& left_out = options.fuse ? options.no_fuse : rules;
  context->left_out.insert(left_out.begin(), left_out.end());
  context->variant = options.variant;
  context->include_folders = options.include_folders;
  context->defines = options.defines;
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
