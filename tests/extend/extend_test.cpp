// MACO with what this folder adds to it: graphs that use it are refused before, and afterwards
// compiled, proved, run and checked as all others are.
#include <fmt/format.h>

#include "compiler/api/compile.h"
#include "compiler/codegen/codegen.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/compiled.h"
#include "tests/extend/extension.h"
#include "tests/fuzz/run_case.h"

namespace maco::test {
namespace {

std::string graph(int64_t world, const std::string& dtype, const std::string& shape,
                  const std::string& reduce) {
  return fmt::format(
      "graph g(world = {}) {{\n  input x : {}[{}]\n  a = softcap(x, cap = 2.5)\n"
      "  s = allreduce(a, algorithm = chunk_ring, reduce = {})\n  output y = softcap(s, cap = 30)\n"
      "  output z = allreduce(x, algorithm = chunk_ring, reduce = {})\n}}",
      world, dtype, shape, reduce, reduce);
}

std::string refused(const std::string& text) {
  ir::Diagnostics d;
  auto g = api::read_graph("g.maco", text, d);
  if (g) api::compile(std::move(*g), {}, d);
  CHECK(d.errors() > 0);
  return d.render();
}

void know_it_all() {
  static const std::string errors = extend::register_softcap() + extend::register_chunk_ring();
  REQUIRE(errors.empty());
}

TEST_CASE("what nobody has registered is unknown, and is known afterwards") {
  const std::string text = graph(2, "f32", "4, 6", "sum");
  CHECK_THAT(refused(text), Contains("unknown op 'softcap'"));
  CHECK_THAT(refused("graph g(world = 2) {\n  input x : f32[4]\n"
                     "  output y = allreduce(x, algorithm = chunk_ring)\n}"),
             Contains("found 'chunk_ring'"));
  know_it_all();
  compiled(text);
  CHECK(extend::register_softcap() == "device function 'softcap' is there already");
  CHECK(extend::register_chunk_ring() == "device function 'ring_step' is there already");
}

TEST_CASE("graphs with an op and an algorithm from outside run right on every number of ranks") {
  know_it_all();
  fuzz::report_crashes();
  std::vector<fuzz::Case> cases;
  const auto add = [&](int64_t world, const char* dtype, const std::string& shape,
                       const char* reduce) {
    fuzz::Case c;
    c.name = fmt::format("{} ranks, {}[{}], {}", world, dtype, shape, reduce);
    c.text = graph(world, dtype, shape, reduce);
    c.launches.resize(3);
    c.seed = 11 + cases.size();
    cases.push_back(std::move(c));
  };
  for (int64_t world = 1; world <= 8; ++world) {
    add(world, "f32", fmt::format("{}, 7", world), "sum");
    add(world, "bf16", fmt::format("3, {}", 1000 * world), "sum");
    add(world, world % 2 ? "f16" : "f32", fmt::format("{}, 2, 515", world),
        world % 2 ? "max" : "min");
  }
  for (const bool check_access : {false, true}) {
    const fuzz::BatchResult r = fuzz::run_batch(cases, {.check_access = check_access});
    for (size_t i = 0; i < cases.size(); ++i) {
      INFO(cases[i].name << ": " << r.errors[i]);
      CHECK(r.errors[i].empty());
    }
  }
}

TEST_CASE("what an algorithm from outside can't do is refused by name") {
  know_it_all();
  CHECK_THAT(refused(graph(4, "f32", "3, 5", "sum")),
             Contains("'chunk_ring' needs a multiple of 4 elements"));
  CHECK_THAT(refused(graph(4, "f32", "4, 5", "avg")), Contains("'chunk_ring' has no 'avg'"));
  CHECK_THAT(
      refused("graph g(world = 2) {\n  input x : i32[4]\n  output y = softcap(x, cap = 1)\n}"),
      Contains("'softcap' takes floats, not i32"));
}

TEST_CASE("each wait of an algorithm from outside is needed, and its sums are proved") {
  know_it_all();
  const ir::Program right = compiled(
                                "graph g(world = 4) {\n  input x : f32[8, 5]\n"
                                "  output y = allreduce(x, algorithm = chunk_ring)\n}")
                                .program;
  const auto verified = [](const ir::Program& p) {
    ir::Diagnostics d;
    return verify::verify(p, d);
  };
  REQUIRE(verified(right));
  int waits = 0;
  for (size_t t = 0; t < right.tasks.size(); ++t)
    for (size_t w = 0; w < right.tasks[t].waits.size(); ++w, ++waits) {
      ir::Program p = right;
      p.tasks[t].waits.erase(p.tasks[t].waits.begin() + static_cast<std::ptrdiff_t>(w));
      INFO(ir::describe(right, ir::id_of<ir::TaskId>(t)));
      CHECK_FALSE(verified(p));
    }
  CHECK(waits >= 6);
  // The sum of another chunk, and one without the rank's own chunk.
  for (size_t c = 0; c < right.calls.size(); ++c) {
    if (right.calls[c].transfers[0].kind != ir::Transfer::Kind::Reduce) continue;
    ir::Program p = right;
    p.calls[c].transfers[0] = {.from = {0}, .to = p.calls[c].transfers[0].to};
    CHECK_FALSE(verified(p));
    p = right;
    for (ir::Task& t : p.tasks)
      if (index(t.call) == c) t.accesses[1].region.block.ref.n += 1;
    CHECK_FALSE(verified(p));
  }
}

TEST_CASE("its source stands in the kernel, and the Program's text carries it") {
  know_it_all();
  const api::Compiled c = compiled(graph(2, "f32", "4, 6", "sum"));
  CHECK_THAT(c.kernel, Contains("MACO_OP void softcap(") && Contains("MACO_OP void ring_step("));
  ir::Diagnostics d;
  const std::string text = ir::print(c.program);
  const auto again = ir::parse_program(d.add_file("g.program", text), d);
  REQUIRE(again);
  CHECK(*again == c.program);
  CHECK(api::emit_kernel(c.graph, *again, cpu(), d) == c.kernel);
}

}  // namespace
}  // namespace maco::test
