// MACO with what this folder adds to it: graphs that use it are refused before, and afterwards
// compiled, proved, run and checked as all others are.
#include <fmt/format.h>

#include "compiler/api/compile.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/dumps.h"
#include "compiler/functions/function.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/compiled.h"
#include "tests/extend/extend_test.h"
#include "tests/extend/extension.h"
#include "tests/fuzz/run_case.h"

namespace maco::test {

void know_it_all() {
  static const std::string errors = extend::register_softcap() + extend::register_chunk_ring() +
                                    extend::register_row_scale() + extend::register_plain_matmul() +
                                    extend::register_first_rows();
  REQUIRE(errors.empty());
}

std::string refused(const std::string& text) {
  ir::Diagnostics d;
  auto g = api::read_graph("g.maco", text, d);
  if (g) api::compile(std::move(*g), {}, d);
  CHECK(d.errors() > 0);
  return d.render();
}

namespace {

std::string graph(int64_t world, const std::string& dtype, const std::string& shape,
                  const std::string& reduce) {
  return fmt::format(
      "graph g(world = {}) {{\n  input x : {}[{}]\n  a = softcap(x, cap = 2.5)\n"
      "  s = allreduce(a, algorithm = chunk_ring, reduce = {})\n  output y = softcap(s, cap = 30)\n"
      "  output z = allreduce(x, algorithm = chunk_ring, reduce = {})\n}}",
      world, dtype, shape, reduce, reduce);
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

std::string scaled(int64_t rows, int64_t K, const std::string& dtype, bool pair) {
  const std::string head = fmt::format(
      "graph g(world = 1) {{\n  input x : {1}[{0}, {2}]\n  input s : f32[{0}, 1]\n"
      "  param w : {1}[48, {2}]\n  param v : {1}[48, {2}]\n  n = scale_rows(x, s)\n",
      rows, dtype, K);
  return head + (pair ? "  a = matmul(n, w, transpose_b = true)\n"
                        "  b = matmul(n, v, transpose_b = true)\n  g = silu(a)\n"
                        "  output y = mul(g, b)\n}"
                      : "  output y = matmul(n, w, transpose_b = true)\n}");
}

TEST_CASE("a stage from outside is fused, printed, parsed and right with each way of few rows") {
  know_it_all();
  std::vector<fuzz::Case> cases;
  // A lone row in line, from boxes, and staged; several rows; pairs.
  for (const int64_t rows : {1, 3, 8})
    for (const int64_t K : {40, 256, 2048})
      for (const char* dtype : {"bf16", "f32"})
        for (const bool pair : {false, true}) {
          fuzz::Case c;
          c.name = fmt::format("{} rows of {} {}{}", rows, K, dtype, pair ? ", a pair" : "");
          c.text = scaled(rows, K, dtype, pair);
          c.launches.resize(2);
          c.seed = 5 + cases.size();
          cases.push_back(c);
          const api::Compiled made = compiled(c.text);
          const std::string text = ir::print(made.program);
          INFO(c.name << "\n" << text);
          CHECK_THAT(
              text, Contains(pair ? " = matmul with pair, scale op=" : " = matmul with scale op="));
          CHECK_THAT(text, !Contains(" = scale_rows "));
          ir::Diagnostics d;
          const auto again = frontend::parse_program(d.add_file("g.program", text), d);
          REQUIRE(again);
          CHECK(*again == made.program);
        }
  const fuzz::BatchResult r = fuzz::run_batch(cases, {.check_access = true});
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].name << ": " << r.errors[i]);
    CHECK(r.errors[i].empty());
  }
}

TEST_CASE("a stage from outside is refused where it can't be") {
  know_it_all();
  const ir::Program right = compiled(scaled(3, 40, "bf16", true)).program;
  ir::Diagnostics d;
  const auto said = [&](std::vector<std::string> stages) {
    ir::Call call = right.calls.back();
    call.stages = std::move(stages);
    return functions::refuse_stages(call);
  };
  CHECK(said({"pair", "scale"}).empty());
  CHECK(said({"norm", "scale"}) ==
        "calls 'matmul' with 'norm' and 'scale', which can't be together");
  CHECK_THAT(said({"scale", "pair"}), Contains("twice or in another order than pair, norm, turn"));
  CHECK(said({"add"}) == "calls 'matmul' with 'add', but without 'send'");
  CHECK(said({"scales"}) ==
        "calls 'matmul' with 'scales', which is no stage of it; did you mean 'scale'?");
  CHECK(functions::register_stage({.function = "matmul", .name = "none"}) ==
        "stage 'none' of 'matmul': it fills no slot of 'matmul'");
  CHECK(functions::register_stage(
            {.function = "matmul", .name = "none", .fills = {{"Cols", "ops::X"}}}) ==
        "stage 'none' of 'matmul': 'matmul' has no slot 'Cols'");
  const auto refused_stage = [](functions::Stage stage) {
    stage.function = "matmul";
    stage.name = "none";
    stage.fills = {{"Rows", "ops::X"}};
    return functions::register_stage(std::move(stage));
  };
  functions::Stage wrong;
  wrong.beside = {"nrom"};
  CHECK(refused_stage(wrong) == "stage 'none' of 'matmul': 'matmul' has no stage 'nrom'");
  wrong = {};
  wrong.params = {{"BM"}};
  CHECK(refused_stage(wrong) == "stage 'none' of 'matmul': parameter 'BM' is there already");
  wrong = {};
  wrong.beside = {"pair"};
  wrong.inputs = {{"other"}};
  CHECK(refused_stage(wrong) == "stage 'none' of 'matmul': operand 'other' is there already");
  ops::MatmulStage unknown;
  unknown.name = "unknown";
  CHECK(ops::register_matmul_stage(unknown) ==
        "stage 'unknown' of matmul: no functions::Stage has this name");
}

TEST_CASE("tasks of a function from outside are held to what it says that they touch") {
  know_it_all();
  ir::Program p = compiled(graph(1, "f32", "4000, 7", "sum")).program;
  ir::Diagnostics d;
  REQUIRE(functions::check_touches(p, d));
  for (ir::Call& call : p.calls)
    for (ir::Param& param : call.params)
      if (call.function == "softcap" && param.name == "BR") param.value = int64_t{1};
  CHECK_FALSE(functions::check_touches(p, d));
  CHECK_THAT(d.render(), Contains("softcap 'a' tile 0 touches other regions than it declares"));
}

TEST_CASE("its source stands in the kernel, and the Program's text carries it") {
  know_it_all();
  const api::Compiled c = compiled(graph(2, "f32", "4, 6", "sum"));
  CHECK_THAT(c.kernel, Contains("MACO_OP void softcap(") && Contains("MACO_OP void ring_step("));
  ir::Diagnostics d;
  const std::string text = ir::print(c.program);
  const auto again = frontend::parse_program(d.add_file("g.program", text), d);
  REQUIRE(again);
  CHECK(*again == c.program);
  CHECK(api::emit_kernel(c.graph, *again, cpu(), d) == c.kernel);
}

}  // namespace
}  // namespace maco::test
