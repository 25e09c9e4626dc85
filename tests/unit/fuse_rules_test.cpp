// The rules of the pass `fuse`: left out by name, asked alone, and registered from outside.
#include <string>
#include <vector>

#include "compiler/api/command_line.h"
#include "compiler/api/match.h"
#include "compiler/frontend/frontend.h"
#include "compiler/passes/fuse/groups.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/pipeline/pipeline.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using passes::FuseRule;
using passes::PipelineOptions;

constexpr const char* kText =
    "graph g {\n input x : f32[4, 64]\n param s : f32[64]\n param w : f32[32, 64]\n"
    " n = rmsnorm(x, s)\n m = matmul(n, w, transpose_b = true)\n a = relu(m)\n"
    " output y = exp(a)\n}";

ir::Graph parsed(const std::string& text) {
  ir::Diagnostics d;
  auto graph = frontend::parse_dsl(d.add_file("g.maco", text), d);
  INFO(d.render());
  REQUIRE(graph);
  return std::move(*graph);
}

PipelineOptions cpu(std::vector<std::string> no_fuse) {
  PipelineOptions options;
  options.target = "cpu";
  options.no_fuse = std::move(no_fuse);
  return options;
}

/// The kinds of the ops that are left after `fuse`.
std::vector<std::string> kinds_of(const std::string& text, PipelineOptions options) {
  options.stop_after = "fuse";
  ir::Diagnostics d;
  const auto result = passes::run_pipeline(parsed(text), options, d);
  INFO(d.render());
  REQUIRE(result.ok);
  std::vector<std::string> kinds;
  for (const ir::Op& op : std::get<ir::Graph>(result.unit).ops) kinds.push_back(op.kind);
  return kinds;
}

using Kinds = std::vector<std::string>;

TEST_CASE("rules are left out by name") {
  CHECK(kinds_of(kText, cpu({})) == Kinds{"matmul"});
  CHECK(kinds_of(kText, cpu({"norm"})) == Kinds{"rmsnorm", "matmul"});
  CHECK(kinds_of(kText, cpu({"epilogue"})) == Kinds{"matmul", "fused"});
  // The matmul takes up the op right behind it.
  CHECK(kinds_of(kText, cpu({"elementwise"})).size() == 2);
  CHECK(kinds_of(kText, cpu({"epilogue", "elementwise", "norm"})) ==
        Kinds{"rmsnorm", "matmul", "relu", "exp"});
  CHECK(kinds_of(kText, cpu(passes::fuse_rule_names())).size() == 4);
}

TEST_CASE("a rule that isn't there is refused, with the one that is meant and all others") {
  ir::Diagnostics d;
  CHECK_FALSE(passes::run_pipeline(parsed(kText), cpu({"nrom"}), d).ok);
  CHECK_THAT(d.render(), Contains("error: 'nrom' is no rule of 'fuse'; did you mean 'norm'?; there "
                                  "are attention, elementwise, pair, epilogue, norm, slice, turn"));
}

TEST_CASE("a command line says which rules are left out, in their order") {
  CHECK(api::command_line(cpu({"send", "norm", "send"})) == "--target=cpu --no-fuse=norm,send");
  PipelineOptions read;
  REQUIRE(api::read_command_line("--target=cpu --no-fuse=norm,send", read));
  CHECK(read.fuse);
  CHECK(read.no_fuse == Kinds{"norm", "send"});
  REQUIRE(api::read_command_line("--target=cpu --no-fuse", read));
  CHECK_FALSE(read.fuse);
  CHECK(read.no_fuse.empty());
  CHECK_FALSE(api::read_command_line("--target=cpu --no-fuse=nrom", read));
  CHECK_FALSE(api::read_command_line("--target=cpu --no-fuse=", read));
}

TEST_CASE("a Program without some rules is taken with the same option, and only then") {
  const ir::Graph graph = parsed(kText);
  ir::Diagnostics d;
  const PipelineOptions options = cpu({"norm"});
  const auto result = passes::run_pipeline(graph, options, d);
  REQUIRE(result.ok);
  const auto& program = std::get<ir::Program>(result.unit);
  CHECK(api::check_program(graph, program, options, d));
  ir::Diagnostics wrong;
  CHECK_FALSE(api::check_program(graph, program, cpu({}), wrong));
  CHECK_THAT(wrong.render(), Contains("the Program carries another graph"));
  CHECK_THAT(wrong.render(), Contains("--no-fuse=NAME"));
}

TEST_CASE("a Program whose product begins with its own rows is taken") {
  const ir::Graph graph = parsed(
      "graph g(world = 2) {\n input x : bf16[8192, 256]\n param w : bf16[2048, 256]\n"
      " g = allgather(x, algorithm = oneshot)\n output y = matmul(g, w, transpose_b = true)\n}");
  ir::Diagnostics d;
  const PipelineOptions options;
  const auto result = passes::run_pipeline(graph, options, d);
  REQUIRE(result.ok);
  CHECK(result.log.fusions.count("begun with the own rows of what is gathered") == 1);
  CHECK(api::check_program(graph, std::get<ir::Program>(result.unit), options, d));
}

TEST_CASE("algorithms are chosen for what will be fused") {
  // What the product sends after its epilogue is added up by it, in two steps.
  const std::string text =
      "graph g(world = 2) {\n input x : bf16[8192, 512]\n input r : bf16[8192, 2048]\n"
      " param w : bf16[2048, 512]\n p = matmul(x, w, transpose_b = true)\n q = add(p, r)\n"
      " output y = allreduce(q)\n}";
  const auto algorithm = [&](std::vector<std::string> no_fuse) {
    PipelineOptions options;
    options.stop_after = "choose-collectives";
    options.no_fuse = std::move(no_fuse);
    ir::Diagnostics d;
    const auto result = passes::run_pipeline(parsed(text), options, d);
    REQUIRE(result.ok);
    const auto& graph = std::get<ir::Graph>(result.unit);
    CHECK(graph.ops.size() == 3);
    return std::get<std::string>(graph.ops.back().attrs.at("algorithm").value);
  };
  CHECK(algorithm({}) == "twoshot");
  CHECK(algorithm({"epilogue"}) == "oneshot");
}

// Two relus are one.
bool fold_relus(ir::Graph& graph, passes::PassContext& context) {
  for (size_t i = 1; i < graph.ops.size(); ++i) {
    ir::Op &first = graph.ops[i - 1], &second = graph.ops[i];
    if (first.kind != "relu" || second.kind != "relu" || second.in[0] != first.out[0]) continue;
    context.fused("relu of relu", second.name);
    second.in[0] = first.in[0];
    std::vector<bool> dead(graph.ops.size(), false);
    dead[i - 1] = true;
    passes::erase_ops(graph, dead);
    return true;
  }
  return true;
}
// Is asked about each group, and adds nothing to it.
void join_none(const passes::Groups& groups, passes::Group& group) {
  CHECK(groups.operands(group).size() > 0);
}

TEST_CASE("a rule from outside is asked and left out as those of MACO are") {
  const std::string text = "graph g {\n input x : f32[4, 8]\n a = relu(x)\n output y = relu(a)\n}";
  const PipelineOptions apart = cpu({"elementwise"});
  CHECK(kinds_of(text, apart).size() == 2);
  CHECK(passes::register_fuse_rule(
            {.name = "relus", .summary = "relu with relu", .fold = fold_relus}) == "");
  CHECK(passes::register_fuse_rule({.name = "nothing", .summary = "none", .join = join_none}) ==
        "");
  CHECK(passes::fuse_rule_names().back() == "nothing");
  CHECK(kinds_of(text, apart) == Kinds{"relu"});
  CHECK(kinds_of(text, cpu({"elementwise", "relus"})).size() == 2);
  // Where `sm_roles` name ops it isn't asked.
  const std::string named =
      "graph g {\n set sm_roles = [{sms: [0, 8], role: compute, tasks: [relu]}]\n" +
      text.substr(text.find('\n') + 1);
  CHECK(kinds_of(named, apart).size() == 2);

  CHECK(passes::register_fuse_rule({.name = "relus", .summary = "", .fold = fold_relus}) ==
        "rule 'relus' of 'fuse' is there already");
  CHECK_THAT(passes::register_fuse_rule({.name = "all", .summary = "", .fold = fold_relus}),
             Contains("needs a name"));
  CHECK_THAT(passes::register_fuse_rule({.name = "a,b", .summary = "", .fold = fold_relus}),
             Contains("needs a name"));
  CHECK_THAT(passes::register_fuse_rule({.name = "lone", .summary = ""}),
             Contains("needs either what it folds or what it joins"));
}

}  // namespace
}  // namespace maco::test
