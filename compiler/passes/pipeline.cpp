#include "compiler/passes/pipeline.h"

#include <fmt/format.h>

#include <chrono>

#include "compiler/verify/verify.h"

namespace maco::passes {

std::optional<Context> make_context(const Unit& unit, const PipelineOptions& options,
                                    ir::Diagnostics& diagnostics) {
  const auto* program = std::get_if<ir::Program>(&unit);
  const cost::Machine* machine =
      cost::find_machine(program ? program->target : options.target,
                         program ? program->board : options.board, diagnostics);
  if (!machine) return std::nullopt;
  if (options.sms > machine->sms) {
    diagnostics.error({}, fmt::format("a rank can't use {} SMs: board '{}' has {}", options.sms,
                                      machine->board, machine->sms));
    return std::nullopt;
  }
  std::optional<Context> context(std::in_place, diagnostics, *machine);
  context->load_ahead = options.load_ahead;
  context->available_sms = options.sms > 0 ? options.sms : machine->sms;
  return context;
}

PipelineResult run_pipeline(const ir::Graph& graph, const PipelineOptions& options,
                            ir::Diagnostics& diagnostics) {
  PipelineResult result;
  result.unit = graph;
  auto made = make_context(result.unit, options, diagnostics);
  if (!made) return result;
  Context& context = *made;

  bool stopped = false;
  ir::Program proved;
  const auto step = [&](const char* name) {
    if (stopped) return true;
    const Pass& pass = *find_pass(name);
    const auto begin = std::chrono::steady_clock::now();
    const bool ok = apply(pass, result.unit, context);
    result.seconds.emplace_back(
        name, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    result.statistics = context.statistics;
    if (ok && options.after_pass) options.after_pass(pass, result.unit);
    const auto* program = std::get_if<ir::Program>(&result.unit);
    if (ok && options.verify_each && program && *program != proved) {
      const auto start = std::chrono::steady_clock::now();
      const bool right = verify::verify(*program, diagnostics);
      result.seconds.emplace_back(
          fmt::format("verify after {}", name),
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      if (!right) {
        result.broken_by = name;
        return false;
      }
      proved = *program;
    }
    if (ok) result.right_after = name;
    stopped = options.stop_after == name;
    return ok;
  };

  // On the graph. What can't be compiled is refused by name before anything is changed.
  if (!step("check-support")) return result;
  // From here on each meaning has one spelling, collectives of one rank are copies, and no op
  // writes a state that it still reads.
  if (!step("canonicalize")) return result;
  // From here on chains of elementwise ops are one op each, with the bits they had apart.
  if (options.fuse && !step("fuse")) return result;
  // From here on each collective names its algorithm.
  if (!step("choose-collectives")) return result;
  // From here on sm_roles is a list of ranges, and every kind of op has a home.
  if (!step("assign-roles")) return result;

  // On the Program. From here on there are tasks with the regions they touch, and every dependency
  // points forward.
  if (!step("tile")) return result;
  // From here on temporaries and slots have addresses.
  if (!step("plan-memory")) return result;
  // From here on each task has an SM and a place in its stream.
  if (!step("schedule")) return result;
  // From here on every two tasks that touch the same bytes, one writing, are ordered.
  if (!step("insert-sync")) return result;
  // The same order with fewer waits.
  if (options.prune && !step("prune-sync")) return result;
  // The proof, from the Program alone.
  if (!step("verify")) return result;
  result.ok = true;
  return result;
}

}  // namespace maco::passes
