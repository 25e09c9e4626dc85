// apply.cpp: a pass runs only on the forms that it takes.
#include <fmt/format.h>

#include "compiler/pipeline/registry.h"
#include "compiler/verify/report.h"
#include "compiler/verify/structure.h"
#include "compiler/verify/verify.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

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
