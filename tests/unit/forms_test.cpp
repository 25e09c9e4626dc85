// Every pass on everything that may stand between two passes: it runs, and what it makes is right,
// or it is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "compiler/api/match.h"
#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/unit_text.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using passes::Form;
using passes::Unit;

const std::map<Form, std::set<std::string>> kTaken = {
    {Form::Graph, {"read-kernels", "take-variant", "check-support"}},
    {Form::Supported, {"read-kernels", "take-variant", "check-support", "canonicalize"}},
    {Form::Canonical,
     {"read-kernels", "take-variant", "check-support", "canonicalize", "prepare-operands",
      "choose-collectives"}},
    {Form::Chosen,
     {"read-kernels", "take-variant", "check-support", "canonicalize", "prepare-operands",
      "choose-collectives", "fuse", "assign-roles"}},
    {Form::Roles,
     {"read-kernels", "take-variant", "check-support", "canonicalize", "prepare-operands",
      "choose-collectives", "fuse", "assign-roles", "choose-tiles"}},
    {Form::Cut,
     {"read-kernels", "take-variant", "check-support", "canonicalize", "prepare-operands",
      "choose-collectives", "fuse", "assign-roles", "choose-tiles", "tile"}},
    {Form::Tiled, {"send-packets", "plan-memory", "verify"}},
    {Form::Planned, {"schedule", "verify"}},
    {Form::Scheduled, {"insert-sync", "verify"}},
    {Form::Synced, {"prune-sync", "share-slots", "verify"}},
};

const std::vector<std::string> kGraphs = {
    "graph one { input x : f32[4, 4]\n output y = softmax(x) }",
    "graph lone { input x : f32[4, 4]\n output y = allreduce(x) }",
    "graph state(world = 2) { input x : f32[4, 4]\n state s : f32[4, 4]\n param w : f32[4, 4]\n"
    " m = matmul(x, w)\n s = add(m, s)\n s = softmax(s)\n output y = allgather(s) }",
    "graph told(world = 2) { set sm_roles = [{sms: [0, 4], role: compute}, {sms: [4, 6], role: "
    "comm}]\n input x : f32[4, 4]\n h = relu(x)\n output y = allreduce(h, algorithm = twoshot) }",
    "graph messages(world = 2) { input x : f32[4, 4]\n send(x, dst = 1, if = rank == 0)\n"
    " output y = recv(src = 0, shape = [4, 4], dtype = f32, if = rank == 1) }",
    "graph counts(world = 3) { set sm_roles = {compute: 4, comm: 2}\n dim n <= 8\n"
    " input x : bf16[n, 16]\n a = silu(x)\n b = exp(a)\n output y = allreduce(b) }",
};

ir::Graph parsed(const std::string& text) {
  ir::Diagnostics d;
  auto graph = frontend::parse_dsl(d.add_file("g.maco", text), d);
  INFO(d.render());
  REQUIRE(graph);
  return std::move(*graph);
}

passes::PipelineOptions cpu() {
  passes::PipelineOptions options;
  options.target = "cpu";
  return options;
}

/// What stands before the first pass of the pipeline and after each.
std::vector<Unit> units_of(const std::string& text) {
  const ir::Graph graph = parsed(text);
  std::vector<Unit> units{graph};
  passes::PipelineOptions options = cpu();
  options.after_pass = [&](const passes::Pass&, Unit& unit) { units.push_back(unit); };
  ir::Diagnostics d;
  const bool ok = passes::run_pipeline(graph, options, d).ok;
  INFO(d.render());
  REQUIRE(ok);
  return units;
}

/// Whether it promises what its form says: of a Program the verifier knows, a graph compiles.
bool is_right(const Unit& unit) {
  ir::Diagnostics d;
  if (const auto* program = std::get_if<ir::Program>(&unit)) return verify::verify(*program, d);
  return passes::run_pipeline(std::get<ir::Graph>(unit), cpu(), d).ok;
}

Form form_of(const Unit& unit) {
  ir::Diagnostics d;
  return passes::form_of(unit, *passes::make_context(unit, cpu(), d));
}

/// Applies all of `names`; checks each step.
void check_passes(const Unit& start, const std::vector<std::string>& names) {
  Unit unit = start;
  for (const std::string& pass_name : names) {
    const passes::Pass& pass = *passes::find_pass(pass_name);
    const Form given = form_of(unit);
    ir::Diagnostics d;
    auto context = passes::make_context(unit, cpu(), d);
    REQUIRE(context);
    const bool ok = passes::apply(pass, unit, *context);
    INFO(pass_name << " on " << passes::name(given) << "\n" << d.render());
    REQUIRE(ok == (kTaken.at(given).count(pass_name) > 0));
    REQUIRE(ok != d.has_errors());
    if (!ok) {
      CHECK(d.errors() == 1);
      CHECK_THAT(d.render(),
                 Contains(fmt::format("error: pass '{}' takes {}, but was given {}: ", pass_name,
                                      passes::name(pass.takes_from), passes::name(given))));
      return;
    }
    CHECK(form_of(unit) >= pass.gives);
    CHECK(is_right(unit));
  }
}

TEST_CASE("two passes in any order, from anywhere in the pipeline") {
  std::set<Form> seen;
  for (const std::string& text : kGraphs)
    for (const Unit& unit : units_of(text)) {
      INFO(passes::to_text(unit));
      seen.insert(form_of(unit));
      for (const passes::Pass& first : passes::registry())
        for (const passes::Pass& second : passes::registry())
          check_passes(unit, {first.name, second.name});
    }
  // All but graphs that can't be compiled.
  CHECK(seen.size() == kTaken.size() - 1);
}

TEST_CASE("only passes that give no supported graph take one that can't be compiled") {
  const Unit unit = parsed(
      "graph g(world = 2) { set schedule = dynamic\n input x : f32[4]\n"
      " output y = relu(x) }");
  CHECK(form_of(unit) == Form::Graph);
  for (const passes::Pass& pass : passes::registry()) {
    INFO(pass.name);
    Unit copy = unit;
    ir::Diagnostics d;
    auto context = passes::make_context(copy, cpu(), d);
    const bool taken = pass.gives == Form::Graph;
    CHECK(passes::apply(pass, copy, *context) == taken);
    CHECK_THAT(d.render(),
               Contains(taken                          ? ""
                        : pass.name == "check-support" ? "schedule 'dynamic' can't be compiled"
                                                       : "run 'check-support'"));
  }
}

TEST_CASE("a Program that says another stage than it is at") {
  int refused = 0;
  for (const std::string& text : kGraphs)
    for (const Unit& unit : units_of(text)) {
      const auto* program = std::get_if<ir::Program>(&unit);
      if (!program) continue;
      for (const ir::Stage stage :
           {ir::Stage::Tiled, ir::Stage::Planned, ir::Stage::Scheduled, ir::Stage::Synced})
        for (const passes::Pass& pass : passes::registry()) {
          Unit changed = *program;
          std::get<ir::Program>(changed).stage = stage;
          ir::Diagnostics d;
          auto context = passes::make_context(changed, cpu(), d);
          const bool ok = passes::apply(pass, changed, *context);
          INFO(pass.name << " on " << passes::to_text(changed) << d.render());
          REQUIRE(ok != d.has_errors());
          if (d.render().find("as its first line says") != std::string::npos) {
            ++refused;
            CHECK(stage > program->stage);
          }
        }
    }
  CHECK(refused > 0);
}

TEST_CASE("the ways of a refusal") {
  const auto units = units_of(kGraphs[0]);
  const auto said = [](Unit unit, const std::string& pass) {
    ir::Diagnostics d;
    auto context = passes::make_context(unit, cpu(), d);
    CHECK_FALSE(passes::apply(*passes::find_pass(pass), unit, *context));
    return d.render();
  };
  CHECK(said(units.back(), "schedule") ==
        "error: pass 'schedule' takes a planned Program, but was given a synced Program: it has "
        "been through 'schedule', 'insert-sync' already\n");
  const auto tiled = std::find_if(units.begin(), units.end(),
                                  [](const Unit& unit) { return form_of(unit) == Form::Tiled; });
  REQUIRE(tiled != units.end());
  CHECK(said(*tiled, "prune-sync") ==
        "error: pass 'prune-sync' takes a synced Program, but was given a tiled Program: run "
        "'plan-memory', 'schedule', 'insert-sync' first\n");
}

TEST_CASE("a rank uses no more SMs than its board has") {
  for (const int64_t sms : {132, 133}) {
    passes::PipelineOptions options;
    options.sms = sms;
    ir::Diagnostics d;
    CHECK(passes::run_pipeline(parsed(kGraphs[0]), options, d).ok == (sms == 132));
    CHECK(d.render() == (sms == 132 ? ""
                                    : "error: a rank can't use 133 SMs: board 'h200' has "
                                      "132\n"));
  }
}

TEST_CASE("a Program for --program is of the graph and synced") {
  const ir::Graph graph = parsed(kGraphs[3]);
  const auto units = units_of(kGraphs[3]);
  const auto said = [&](const ir::Program& program) {
    ir::Diagnostics d;
    const bool ok = api::check_program(graph, program, cpu(), d);
    CHECK(ok != d.has_errors());
    if (ok) CHECK(api::emit_kernel(graph, program, cpu(), d) != "");
    return d.render();
  };
  for (const Unit& unit : units) {
    const auto* program = std::get_if<ir::Program>(&unit);
    if (!program) continue;
    if (program->stage == ir::Stage::Synced)
      CHECK(said(*program) == "");
    else
      CHECK_THAT(said(*program), Contains("error: a kernel takes a synced Program, but was given"));
  }
  const auto changed = [&](const auto& change) {
    auto program = std::get<ir::Program>(units.back());
    change(program);
    return said(program);
  };
  CHECK_THAT(changed([](ir::Program& p) { p.tasks[0].sm = -1; }), Contains("runs on CTA -1"));
  auto lone = std::get<ir::Program>(units_of(kGraphs[0]).back());
  lone.world = 4;
  CHECK_THAT(said(lone), Contains("is for 4 ranks, but the graph for 2"));
  CHECK_THAT(changed([](ir::Program& p) { p.target = "sm_1"; }), Contains("unknown target 'sm_1'"));
  CHECK_THAT(changed([](ir::Program& p) { p.calls[0].function = "q"; }),
             Contains("calls 'q', which is no device function"));
  CHECK_THAT(changed([](ir::Program& p) { p.values.push_back({ir::Expr::var("n"), {0, 1}}); }),
             Contains("value %0 is n, but there is no dim or scalar 'n'"));
  CHECK_THAT(changed([](ir::Program& p) { p.variables.push_back({"n", {0, 1}}); }),
             Contains("the Program's dims and scalars are not those of the graph"));
  CHECK_THAT(changed([](ir::Program& p) { p.buffers[0].tensor = "q"; }),
             Contains("has a tensor 'q' that the graph doesn't have") &&
                 Contains("lacks the graph's 'x'"));
  CHECK_THAT(changed([](ir::Program& p) { p.buffers[0].dtype = ir::DType::F16; }),
             Contains("takes 'x' as input of 16 f16, but in the graph it is input of 16 f32"));
}

}  // namespace
}  // namespace maco::test
