// Which pass made a Program wrong.
#include <functional>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "tests/catch.h"
#include "tools/pass_output.h"

namespace maco::test {
namespace {

const char* const kGraph = R"(graph g(world = 2) {
  input x : f32[4, 8]
  a = softmax(x)
  output y = allreduce(a)
})";

/// What macoc says of g.maco if `damage` is done to the Program that `pass` made; "" if it accepts.
std::string said(bool each, const std::string& pass,
                 const std::function<void(ir::Program&)>& damage) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_graph(diagnostics.add_file("g.maco", kGraph), diagnostics);
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  options.verify_each = each;
  options.after_pass = [&](const passes::Pass& now, passes::Unit& unit) {
    if (now.name == pass) damage(std::get<ir::Program>(unit));
  };
  passes::PassLog log;
  const bool ok = api::compile(*graph, options, diagnostics, &log).has_value();
  if (!ok) tools::add_notes(log, options, "g.maco", diagnostics);
  CHECK(ok == !diagnostics.has_errors());
  return diagnostics.render();
}

void drop_sync(ir::Program& p) {
  for (ir::Task& t : p.tasks) t.waits.clear();
  for (ir::Task& t : p.tasks) t.signals.clear();
  p.events.clear();
}

TEST_CASE("--verify=each names the pass that broke the Program, and how to see the state before") {
  CHECK(said(true, "prune-sync", [](ir::Program&) {}) == "");
  CHECK_THAT(said(true, "prune-sync", drop_sync),
             Contains("error: count: ") &&
                 Contains("note: the Program was right before 'prune-sync': macoc g.maco "
                          "--target=cpu --print-after=insert-sync"));
  CHECK_THAT(said(true, "plan-memory", [](ir::Program& p) { p.symmetric_bytes = 0; }),
             Contains("error: slot 'y.slots' lies at 0") &&
                 Contains("before 'plan-memory': macoc g.maco --target=cpu "
                          "--print-after=send-packets"));
  CHECK_THAT(said(true, "tile", [](ir::Program& p) { p.world = 65; }),
             Contains("note: the graph before 'tile': macoc g.maco --target=cpu "
                      "--print-after=choose-tiles"));
}

TEST_CASE("at the end the proof says that something is wrong, not which pass it was") {
  const std::string end = said(false, "prune-sync", drop_sync);
  CHECK_THAT(end, Contains("error: count: "));
  CHECK_THAT(end, Contains("note: --verify=each says which pass made it wrong"));
  CHECK_THAT(end, !Contains("prune-sync"));
}

}  // namespace
}  // namespace maco::test
