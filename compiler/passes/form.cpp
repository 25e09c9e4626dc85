// form.cpp: which form a Unit has. A pass runs only on the forms that it takes.
#include <fmt/format.h>

#include "compiler/passes/passes.h"
#include "compiler/verify/report.h"
#include "compiler/verify/structure.h"
#include "ir/check.h"

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

// "'plan-memory', 'schedule'": the first pass that gives each form above `from`, up to `to`.
std::string passes_between(Form from, Form to) {
  std::string list;
  Form reached = from;
  for (const Pass& p : registry()) {
    if (p.gives <= reached || p.gives > to) continue;
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", p.name);
    reached = p.gives;
  }
  return list;
}

bool run(const Pass& pass, Unit& unit, PassContext& context) {
  if (auto* program = std::get_if<ir::Program>(&unit)) return pass.on_program(*program, context);
  auto& graph = std::get<ir::Graph>(unit);
  if (pass.on_graph) return pass.on_graph(graph, context);
  ir::Program program;
  if (!pass.lower(graph, program, context)) return false;
  unit = std::move(program);
  return true;
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

bool check_form(std::string_view who, Form from, Form to, const Unit& unit, PassContext& context,
                bool structured) {
  ir::Diagnostics& d = context.diagnostics;
  const Form given = form_of(unit, context);
  if (given < from || given > to) {
    const std::string makers =
        given < from ? fmt::format("run {} first", passes_between(given, from))
                     : fmt::format("it has been through {} already", passes_between(to, given));
    d.error({},
            fmt::format("{} takes {}, but was given {}: {}", who, name(from), name(given), makers));
    return false;
  }
  const auto* program = std::get_if<ir::Program>(&unit);
  if (!program || structured) return true;
  verify::Reporter reporter(*program, d, verify::VerifyOptions().max_reports);
  verify::check_structure(*program, reporter);
  if (reporter.failed())
    d.note({}, fmt::format("{} takes no Program that isn't {}, as its first line says", who,
                           ir::name(program->stage)));
  return !reporter.failed();
}

bool apply(const Pass& pass, Unit& unit, PassContext& context, bool structured) {
  if (!check_form(fmt::format("pass '{}'", pass.name), pass.takes_from, pass.takes_to, unit,
                  context, structured))
    return false;
  if (!run(pass, unit, context)) return false;
  MACO_CHECK(form_of(unit, context) >= pass.gives,
             fmt::format("'{}' gave {}", pass.name, name(form_of(unit, context))));
  return true;
}

}  // namespace maco::passes
