// An op from outside whose work only a launch decides.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compiler/functions/function.h"
#include "runtime/cpu/compile.h"
#include "tests/catch.h"
#include "tests/compiled.h"
#include "tests/extend/extend_test.h"
#include "tests/fuzz/run_case.h"

namespace maco::test {
namespace {

std::string graph(const std::string& rows, const std::string& count, int64_t cols,
                  const char* dtype) {
  return fmt::format(
      "graph g(world = 1) {{\n  dim tokens <= 50\n  scalar n in [0, 31)\n"
      "  input x : {}[{}, {}]\n  f = first_rows(x, count = {})\n  output y = relu(f)\n}}",
      dtype, rows, cols, count);
}

TEST_CASE("an op from outside does as much as a launch says, down to nothing") {
  know_it_all();
  fuzz::report_crashes();
  std::vector<fuzz::Case> cases;
  const auto add = [&](const std::string& rows, const std::string& count) {
    for (const auto& [cols, dtype] : {std::pair<int64_t, const char*>{3, "f32"}, {700, "bf16"}}) {
      fuzz::Case c;
      c.name = fmt::format("{} of {} rows of {} {}", count, rows, cols, dtype);
      c.text = graph(rows, count, cols, dtype);
      for (const auto& [tokens, n] :
           {std::pair<int64_t, int64_t>{50, 30}, {1, 0}, {2, 1}, {37, 0}, {31, 30}, {50, 7}})
        c.launches.push_back({{"tokens", tokens}, {"n", n}});
      c.seed = 7 + cases.size();
      cases.push_back(std::move(c));
    }
  };
  add("30", "n");               // none to all of what is always there
  add("tokens", "tokens / 2");  // none of one row
  add("tokens", "tokens - 1");
  add("tokens", "tokens");
  add("tokens + 29", "n");
  for (const bool check_access : {false, true}) {
    const fuzz::BatchResult r = fuzz::run_batch(cases, {.check_access = check_access});
    for (size_t i = 0; i < cases.size(); ++i) {
      INFO(cases[i].name << ": " << r.errors[i]);
      CHECK(r.errors[i].empty());
    }
  }
}

TEST_CASE("code that goes beyond a launch's rows is found") {
  know_it_all();
  fuzz::Case c;
  c.name = "one row too many";
  c.text = graph("tokens", "tokens / 2", 700, "f32");
  c.launches = {{{"tokens", 9}, {"n", 0}}};
  const std::string right = "i < rows * C::cols;", wrong = "i < (rows + 1) * C::cols;";
  for (const bool spoil : {false, true}) {
    fuzz::Prepared p = fuzz::prepare(c, {.check_access = true});
    REQUIRE(p.error == "");
    const size_t at = p.kernel.find(right);
    REQUIRE(at != std::string::npos);
    if (spoil) p.kernel.replace(at, right.size(), wrong);
    runtime::Status status;
    const auto library = runtime::compile_cpu_kernels({p.kernel}, {.check_access = true}, status);
    INFO(status.message);
    REQUIRE(library);
    fuzz::Results results;
    const std::string error = fuzz::run(p, library, 0, true, results);
    if (spoil)
      CHECK_THAT(error, Contains("first_rows"));
    else
      CHECK(error == "");
  }
}

TEST_CASE("the cost of an op from outside follows the launch that is typical") {
  know_it_all();
  const auto of = [](const std::string& typical) {
    std::string text = graph("30", "n", 700, "f32");
    text.replace(text.find("[0, 31)"), 7, "[0, 31) typical " + typical);
    const ir::Program p = compiled(text).program;
    double bytes = 0;
    for (const ir::Task& task : p.tasks) {
      const ir::Call& call = p[task.call];
      if (call.function != "first_rows") continue;
      const functions::Function& f = *functions::find_function(call);
      bytes += f.work({p, call}, task, *cost::find_machine("cpu")).bytes;
    }
    return bytes;
  };
  CHECK(of("0") == 30 * 700 * 4);
  CHECK(of("30") == 60 * 700 * 4);
  CHECK(of("7") == 37 * 700 * 4);
}

TEST_CASE("counts that a launch might not have are refused") {
  know_it_all();
  CHECK_THAT(refused(graph("29", "n", 4, "f32")),
             Contains("'first_rows' keeps 0 to 29 rows, not 'n'"));
  CHECK_THAT(refused(graph("tokens", "n", 4, "f32")),
             Contains("'first_rows' keeps 0 to tokens rows, not 'n'"));
  CHECK_THAT(refused(graph("30", "n - 1", 4, "f32")), Contains("not 'n - 1'"));
  // Edited Programs are held to what tasks touch.
  ir::Program p = compiled(graph("tokens", "tokens / 2", 700, "f32")).program;
  ir::Diagnostics d;
  REQUIRE(functions::check_touches(p, d));
  for (ir::Call& call : p.calls)
    for (ir::Param& param : call.params)
      if (call.function == "first_rows" && param.name == "BR") param.value = int64_t{2};
  CHECK_FALSE(functions::check_touches(p, d));
  CHECK_THAT(d.render(), Contains("first_rows 'f' tile 0 touches other regions than it declares"));
}

}  // namespace
}  // namespace maco::test
