// Graphs that would be cut into too many tasks are refused before these are made.
#include <fmt/format.h>

#include <string>

#include "compiler/frontend/frontend.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/passes.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

constexpr size_t kMost = ops::TileContext::kMostTasks;

// What is left of the Program when its tasks were too many, and what was said.
struct Refused {
  size_t tasks = 0;
  std::string said;
};
Refused refused(const std::string& text) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("g", text), diagnostics);
  REQUIRE(graph);
  const cost::Machine* machine = cost::find_machine("sm_90a");
  REQUIRE(machine);
  passes::PassContext context(diagnostics, *machine);
  ir::Graph with_roles = *graph;
  with_roles.sm_roles.value = ir::Roles{std::vector<ir::RoleRange>{{0, 132, "compute", {}, {}}}};
  ir::Program program;
  CHECK_FALSE(passes::tile(with_roles, program, context));
  return {program.tasks.size(), diagnostics.render()};
}

TEST_CASE("an op with too many tasks makes none") {
  const Refused one = refused(
      "graph g {\n  input x : bf16[1048576, 4]\n  param w : bf16[4, 1048576]\n"
      "  output y = matmul(x, w)\n}\n");
  CHECK(one.tasks == 0);
  CHECK_THAT(one.said,
             Contains(fmt::format("'matmul' brings the graph to more than {} tasks", kMost)) &&
                 Contains("g:4:"));
}

TEST_CASE("of ops that together have too many tasks only the first make any") {
  // 131,072 tasks each: sixteen are just as many as there may be.
  std::string text =
      "graph g {\n  input q : f32[16384, 8192]\n  input k : f32[16384, 1024]\n"
      "  input v : f32[16384, 1024]\n";
  for (int i = 0; i < 20; ++i)
    text += fmt::format("  output y{} = attention(q, k, v, head_dim = 128)\n", i);
  const Refused all = refused(text + "}\n");
  CHECK(all.tasks > 0);
  CHECK(all.tasks < kMost / 4);
  CHECK_THAT(all.said, Contains("'attention' brings the graph to more than") && Contains("g:21:"));
}

}  // namespace
}  // namespace maco::test
