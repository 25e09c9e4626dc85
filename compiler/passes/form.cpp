// form.cpp: which form a Unit has.
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

Form form_of(ir::Stage stage) {
  switch (stage) {
    case ir::Stage::Tiled: return Form::Tiled;
    case ir::Stage::Planned: return Form::Planned;
    case ir::Stage::Scheduled: return Form::Scheduled;
    case ir::Stage::Synced: break;
  }
  return Form::Synced;
}

}  // namespace

std::string_view name(Form form) {
  switch (form) {
    case Form::Graph: return "a graph";
    case Form::Supported: return "a supported graph";
    case Form::Canonical: return "a canonical graph";
    case Form::Chosen: return "a canonical graph with chosen collectives";
    case Form::Roles: return "a canonical graph with chosen collectives and roles";
    case Form::Cut: return "a canonical graph with chosen collectives, roles and tiles";
    case Form::Tiled: return "a tiled Program";
    case Form::Planned: return "a planned Program";
    case Form::Scheduled: return "a scheduled Program";
    case Form::Synced: break;
  }
  return "a synced Program";
}

Form form_of(const Unit& unit, const PassContext& context) {
  if (const auto* program = std::get_if<ir::Program>(&unit)) return form_of(program->stage);
  const auto& graph = std::get<ir::Graph>(unit);
  if (!is_supported(graph)) return Form::Graph;
  if (!is_canonical(graph)) return Form::Supported;
  if (!has_algorithms(graph)) return Form::Canonical;
  if (!has_roles(graph, context)) return Form::Chosen;
  return has_tiles(graph) ? Form::Cut : Form::Roles;
}

}  // namespace maco::passes
