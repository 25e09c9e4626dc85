// The pass manager: what it runs, shows and proves, whoever uses it.
#include "compiler/pipeline/manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/unit_text.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using passes::PassManager;
using passes::PipelineOptions;
using Names = std::vector<std::string>;

ir::Graph parsed() {
  ir::Diagnostics d;
  auto graph = frontend::parse_dsl(d.add_file("g", R"(graph g(world = 2) {
  input x : f32[4, 8]
  a = relu(x)
  b = exp(a)
  output y = allreduce(b)
})"),
                                   d);
  REQUIRE(graph);
  return std::move(*graph);
}

PipelineOptions cpu() {
  PipelineOptions options;
  options.target = "cpu";
  return options;
}

Names names_of(const passes::PassLog& log) {
  Names names;
  for (const auto& [name, seconds] : log.seconds) names.push_back(name);
  return names;
}

/// The file of a dump behind the pass.
std::string file_of(const std::string& pass, const std::string& ending) {
  const auto& all = passes::registry();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == pass; });
  return fmt::format("{:02}-{}.{}", at - all.begin(), pass, ending);
}

TEST_CASE("the pipeline runs the registry's passes in their order") {
  ir::Diagnostics d;
  Names all;
  for (const passes::Pass& p : passes::registry()) all.push_back(p.name);
  const auto result = passes::run_pipeline(parsed(), cpu(), d);
  REQUIRE(result.ok);
  CHECK(names_of(result.log) == all);
  CHECK(result.log.right_after == "verify");
  CHECK(std::get<ir::Program>(result.unit).stage == ir::Stage::Synced);

  PipelineOptions fewer = cpu();
  fewer.fuse = fewer.prune = false;
  std::erase(all, "fuse");
  std::erase(all, "prune-sync");
  CHECK(names_of(passes::run_pipeline(parsed(), fewer, d).log) == all);
}

TEST_CASE("it ends behind any pass that is named") {
  for (const passes::Pass& p : passes::registry()) {
    ir::Diagnostics d;
    PipelineOptions options = cpu();
    options.stop_after = p.name;
    const auto result = passes::run_pipeline(parsed(), options, d);
    INFO(p.name << d.render());
    CHECK(result.ok);
    CHECK(names_of(result.log).back() == p.name);
    CHECK(passes::form_of(result.unit, *passes::make_context(options, d)) >= p.gives);
    // Passes one by one, as maco-opt runs them, make the same.
    PipelineOptions one_by_one = cpu();
    PassManager manager(passes::make_context(one_by_one, d), one_by_one, d);
    passes::Unit unit = parsed();
    for (const std::string& name : names_of(result.log)) unit = manager.run(name, std::move(unit));
    CHECK(manager.ok());
    CHECK(passes::to_text(unit) == passes::to_text(result.unit));
  }
}

TEST_CASE("after an error nothing more is run") {
  ir::Diagnostics d;
  PipelineOptions options = cpu();
  PassManager manager(passes::make_context(options, d), options, d);
  passes::Unit unit = manager.run("schedule", passes::Unit(parsed()));
  CHECK_FALSE(manager.ok());
  const std::string said = d.render();
  CHECK_THAT(said, Contains("pass 'schedule' takes a planned Program"));
  unit = manager.run("canonicalize", std::move(unit));
  CHECK(passes::to_text(unit) == frontend::print_dsl(parsed()));
  CHECK(d.render() == said);
  CHECK(names_of(manager.log()) == Names{"schedule"});
}

TEST_CASE("without a machine nothing is run") {
  ir::Diagnostics d;
  PipelineOptions options;
  options.target = "sm_1";
  const auto result = passes::run_pipeline(parsed(), options, d);
  CHECK_FALSE(result.ok);
  CHECK(d.render() == "error: unknown target 'sm_1'; did you mean 'sm_120'?\n");
  CHECK(result.log.seconds.empty());
}

TEST_CASE("dumps: all, named ones, and what changed") {
  Names dumped, named, changed;
  const std::string verified = file_of("verify", "program");
  const auto shown = [](Names& names) {
    return [&names](const passes::Dump& dump) { names.push_back(dump.file); };
  };
  ir::Diagnostics d;
  PipelineOptions options = cpu();
  options.dump = shown(dumped);
  options.print = shown(named);
  options.print_after = {"tile", "fuse"};
  REQUIRE(passes::run_pipeline(parsed(), options, d).ok);
  CHECK(dumped.size() == passes::registry().size());
  CHECK(dumped.front() == "00-read-kernels.maco");
  CHECK(dumped.back() == verified);
  CHECK(named == Names{file_of("fuse", "maco"), file_of("tile", "program")});

  PipelineOptions changes = cpu();
  changes.print_changed = true;
  changes.print = shown(changed);
  REQUIRE(passes::run_pipeline(parsed(), changes, d).ok);
  CHECK(std::count(changed.begin(), changed.end(), file_of("fuse", "maco")) == 1);
  CHECK(std::count(changed.begin(), changed.end(), "00-read-kernels.maco") == 0);
  CHECK(std::count(changed.begin(), changed.end(), verified) == 0);
}

TEST_CASE("verification after each pass names the one that broke the Program") {
  ir::Diagnostics d;
  PipelineOptions options = cpu();
  options.verify_each = true;
  options.after_pass = [](const passes::Pass& pass, passes::Unit& unit) {
    if (pass.name == "plan-memory") std::get<ir::Program>(unit).symmetric_bytes = 0;
  };
  const auto result = passes::run_pipeline(parsed(), options, d);
  CHECK_FALSE(result.ok);
  CHECK(result.log.broken_by == "plan-memory");
  CHECK(result.log.right_after == "send-packets");
  CHECK(result.log.proof_failed);
  CHECK(names_of(result.log).back() == "verify after plan-memory");
}

}  // namespace
}  // namespace maco::test
