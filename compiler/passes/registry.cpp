// The table of passes, in the order in which the pipeline runs them.
#include <fmt/format.h>

#include "compiler/passes/passes.h"

namespace maco::passes {

const std::vector<Pass>& registry() {
  static const std::vector<Pass> table = {
      {"check-support", "refuse by name what can't be compiled", check_support, nullptr, nullptr},
      {"canonicalize", "one spelling for each meaning; drop what nothing uses", canonicalize, nullptr, nullptr},
      {"fuse", "chains of elementwise ops into one op, or into the matmul before them", fuse, nullptr, nullptr},
      {"choose-collectives", "an algorithm for each collective", choose_collectives, nullptr, nullptr},
      {"assign-roles", "which SMs compute and which communicate", assign_roles, nullptr, nullptr},
      {"tile", "cut ops into tasks with the regions they touch", nullptr, tile, nullptr},
      {"plan-memory", "addresses of temporaries, by lifetime, and of slots", nullptr, nullptr, plan_memory},
      {"schedule", "an SM and a place in its stream for each task", nullptr, nullptr, schedule},
      {"insert-sync", "events for every dependency between regions", nullptr, nullptr, insert_sync},
      {"prune-sync", "remove waits that stream order or other waits imply", nullptr, nullptr, prune_sync},
      {"verify", "prove what the Program's stage promises", nullptr, nullptr, verify},
  };
  return table;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass& p : registry())
    if (p.name == name) return &p;
  return nullptr;
}

bool apply(const Pass& pass, Unit& unit, Context& context) {
  if (pass.on_program) {
    if (auto* program = std::get_if<ir::Program>(&unit)) return pass.on_program(*program, context);
    context.diagnostics.error({}, fmt::format("pass '{}' takes a Program, but this is a graph: run 'tile' first", pass.name));
    return false;
  }
  auto* graph = std::get_if<ir::Graph>(&unit);
  if (!graph) {
    context.diagnostics.error({}, fmt::format("pass '{}' takes a graph, but this is a Program", pass.name));
    return false;
  }
  if (pass.on_graph) return pass.on_graph(*graph, context);
  ir::Program program;
  if (!pass.lower(*graph, program, context)) return false;
  unit = std::move(program);
  return true;
}

}  // namespace maco::passes
