// Method "plain" of matmul, which no file of MACO knows: compiled, proved, printed, run and refused
// as MACO's own methods are.
#include <fmt/format.h>

#include <vector>

#include "compiler/frontend/dumps.h"
#include "compiler/functions/matmul_method.h"
#include "compiler/ops/matmul_tiles.h"
#include "ir/program_text.h"
#include "runtime/host/jit.h"
#include "runtime/host/nvrtc.h"
#include "tests/catch.h"
#include "tests/compiled.h"
#include "tests/extend/extend_test.h"
#include "tests/extend/extension.h"
#include "tests/fuzz/run_case.h"

namespace maco::test {
namespace {

// A product of rows x 64 by 64 x 48.
std::string product(const char* dtype, bool plain) {
  return fmt::format(
      "graph g(world = 1) {{\n  input x : {0}[20, 64]\n  param w : {0}[64, 48]\n"
      "  output y = matmul(x, w, by_plain = {1})\n}}",
      dtype, plain);
}

constexpr const char* kNormed =
    "graph g(world = 1) {\n  input x : f32[2, 64]\n  param g : f32[64]\n  param w : f32[48, 64]\n"
    "  n = rmsnorm(x, g)\n  output y = matmul(n, w, transpose_b = true, by_plain = true)\n}";

TEST_CASE("a method from outside multiplies, prints and parses") {
  know_it_all();
  fuzz::report_crashes();
  std::vector<fuzz::Case> cases;
  const auto add = [&](const std::string& rows, const char* x, const char* w, int64_t K,
                       bool transposed) {
    fuzz::Case c;
    c.name = fmt::format("{} rows, {} by {}, K {}, {}", rows, x, w, K, transposed);
    c.text = fmt::format(
        "graph g(world = 1) {{\n  dim tokens <= 40\n  input x : {0}[{1}, {2}]\n"
        "  param w : {3}[{4}]\n  param b : f32[52]\n  input z : f32[{1}, 52]\n"
        "  m = matmul(x, w, b, transpose_b = {5}, activation = relu, dtype = f32, by_plain = "
        "true)\n"
        "  output y = add(m, z)\n}}",
        x, rows, K, w, transposed ? fmt::format("52, {}", K) : fmt::format("{}, 52", K),
        transposed);
    for (const int64_t tokens : {1, 17, 40}) c.launches.push_back({{"tokens", tokens}});
    c.seed = 3 + cases.size();
    cases.push_back(std::move(c));
  };
  for (const char* rows : {"1", "5", "33", "tokens"})
    for (const bool transposed : {false, true}) {
      add(rows, "f32", "f32", 7, transposed);
      add(rows, "bf16", "bf16", 40, transposed);
      add(rows, "f16", "f32", 64, transposed);
    }
  for (const bool check_access : {false, true}) {
    const fuzz::BatchResult r = fuzz::run_batch(cases, {.check_access = check_access});
    for (size_t i = 0; i < cases.size(); ++i) {
      const fuzz::Prepared& p = r.prepared[i];
      const std::string text = ir::print(p.program);
      INFO(p.c.name << ": " << r.errors[i] << "\n" << text);
      CHECK(r.errors[i] == "");
      CHECK_THAT(text, Contains(" method=plain ") && !Contains(" loads "));
      CHECK_THAT(p.kernel, Contains("struct ByPlain : AnyMethod {") &&
                               Contains("using method = ops::ByPlain;"));
      ir::Diagnostics d;
      const auto again = frontend::parse_program(d.add_file("g.program", text), d);
      REQUIRE(again);
      CHECK(*again == p.program);
      CHECK(api::emit_kernel(p.graph, *again, cpu(), d) == p.kernel);
    }
  }
}

TEST_CASE("what a method from outside can't do is refused by name") {
  know_it_all();
  CHECK_THAT(
      refused(product("i32", true)),
      Contains("'matmul' can't be cut so: method 'plain' multiplies floats, not i32 with i32"));
  CHECK(compiled(product("i32", false)).kernel.find("ByPlain") == std::string::npos);
  const cost::Machine& machine = *cost::find_machine("sm_90a");
  const functions::MatmulMethod& plain = functions::matmul_method("plain");
  functions::MatmulShape s;
  s.max_rows = s.min_rows = s.typical_rows = 20;
  s.N = 48, s.K = 64;
  CHECK(functions::refuse_matmul(s, plain, {8, 16}, machine) == "");
  CHECK(functions::refuse_matmul(s, plain, {32, 16}, machine) ==
        "a tile of method 'plain' has up to 16 rows and a multiple of 8 columns, not 32 and 16");
  CHECK(functions::refuse_matmul(s, plain, {8, 16, 32}, machine) ==
        "a tile of method 'plain' has all of K, 64 elements, not 32");
  // What the method doesn't know is fused, and says why the product isn't a plain one.
  const api::Compiled normed = compiled(kNormed);
  CHECK(normed.fusions.count("no plain product: it does 'norm' besides") == 1);
  CHECK(normed.kernel.find("ByPlain") == std::string::npos);
}

TEST_CASE("Programs edited to a method that can't do them are refused") {
  know_it_all();
  const auto edited = [](const std::string& text, const auto& change) {
    ir::Program p = compiled(text).program;
    for (ir::Call& call : p.calls)
      if (call.function == "matmul") {
        REQUIRE(functions::check(p, call).empty());
        change(call);
        return functions::check(p, call);
      }
    return std::vector<std::string>{};
  };
  const auto take = [](const char* method) {
    return [=](ir::Call& call) {
      for (ir::Param& p : call.params)
        if (p.name == "method") p.value = ir::Word{method};
    };
  };
  using Said = std::vector<std::string>;
  CHECK(edited(kNormed, take("plane")) ==
        Said{"gives 'plane' as parameter 'method' of 'matmul', which is one of dot, block, mma, "
             "wgmma, by_rows, by_rows_mma, plain"});
  CHECK(edited(kNormed, take("plain")) ==
        Said{"calls 'matmul' with 'norm', which method 'plain' doesn't take"});
  CHECK(edited(kNormed, take("block")) ==
        Said{"calls 'matmul' with 'norm', which method 'block' doesn't take"});
  CHECK(edited(product("f32", false), take("plain")) ==
        Said{"loads operand 1 of 'matmul', which its loader doesn't bring here"});
}

TEST_CASE("a method that contradicts matmul isn't registered") {
  know_it_all();
  CHECK(extend::register_plain_matmul() == "method 'plain' of 'matmul' is there already");
  functions::MatmulMethod m = functions::matmul_method("plain");
  m.code.name = "plainer";
  m.tiles = nullptr;
  CHECK(ops::register_matmul_method(m) ==
        "method 'plainer' of 'matmul': it doesn't say which tiles it takes");
  m = functions::matmul_method("plain");
  m.code.name = "plainer";
  m.code.takes = {"Columns"};
  CHECK(ops::register_matmul_method(m) ==
        "method 'plainer' of 'matmul': 'matmul' has no slot 'Columns', and asks for no such stage");
  CHECK(functions::register_method({.function = "softmax", .name = "m", .code = "ops::M"}) ==
        "method 'm' of 'softmax': 'softmax' has no methods");
}

TEST_CASE("NVRTC compiles a method and an op from outside") {
  know_it_all();
  runtime::Status status;
  auto compiler = runtime::Nvrtc::load(status);
  if (!compiler) WARN("not tested here: " << status.message);
  if (!compiler) return;
  for (const char* arch : {"sm_80", "sm_90a"}) {
    CAPTURE(arch);
    api::Options options;
    options.target = arch;
    const api::Compiled made = compiled(
        "graph g(world = 1) {\n  dim tokens <= 40\n"
        "  input x : bf16[tokens, 64]\n  param w : bf16[64, 48]\n"
        "  f = first_rows(x, count = tokens / 2)\n  output y = matmul(f, w, by_plain = true)\n}",
        options);
    std::string image, log;
    const runtime::Status done =
        compiler->compile(made.kernel, arch, runtime::kernel_compile_options(), image, log);
    CHECK(done.message == "");
    CHECK(!image.empty());
  }
}

}  // namespace
}  // namespace maco::test
