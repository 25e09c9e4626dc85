// Expressions as source of device code: a host compiler makes numbers of it, which are those that
// ir::evaluate gives.
#include "compiler/codegen/expressions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "runtime/cpu/shared_object.h"
#include "runtime/cpu/toolchain.h"
#include "tests/catch.h"
#include "tests/paths.h"

namespace maco::codegen {
namespace {

using ir::Expr;
using Kind = Expr::Kind;

constexpr int kVariables = 3;
using Numbers = std::array<long long, kVariables>;
using Function = long long (*)(const long long*);

Expr random_expr(std::mt19937_64& rng, int depth) {
  if (depth == 0 || rng() % 8 == 0) {
    if (rng() % 2) return Expr::var(std::string(1, static_cast<char>('a' + rng() % kVariables)));
    return {static_cast<int64_t>(rng() % 13) - 6};
  }
  const auto kind = static_cast<Kind>(2 + rng() % 15);
  Expr a = random_expr(rng, depth - 1);
  if (kind == Kind::Neg || kind == Kind::Not) return Expr::unary(kind, std::move(a));
  return Expr::binary(kind, std::move(a), random_expr(rng, depth - 1));
}

std::string source(const Expr& e) {
  return source_of(e, [](std::string_view name) { return fmt::format("v[{}]", name[0] - 'a'); });
}

// The functions of these expressions, compiled with the device's divisions.
std::vector<Function> compile(const std::vector<Expr>& expressions) {
  std::ifstream device(test::source_path("runtime/device/expressions.cuh"));
  std::ostringstream text;
  text << "#define MACO_FN inline\nnamespace maco { using i64 = long long; }\n"
       << device.rdbuf() << "using namespace maco;\n";
  for (size_t i = 0; i < expressions.size(); ++i)
    text << fmt::format(
        "extern \"C\" __attribute__((visibility(\"default\"))) i64 f{}(const i64* v) {{ (void)v; "
        "return {}; }}\n",
        i, source(expressions[i]));
  runtime::Status status;
  std::vector<std::string> command = runtime::find_cpu_compiler(status);
  REQUIRE(status);
  for (std::string& flag : runtime::cpu_kernel_flags(false, false))
    command.push_back(std::move(flag));
  command.emplace_back("-Og");
  std::vector<Function> functions;
  status = runtime::compile_and_load(
      {{"expressions.cpp", text.str()}}, command, false, [&](const std::string& path) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        for (size_t i = 0; library && i < expressions.size(); ++i)
          functions.push_back(
              reinterpret_cast<Function>(dlsym(library, fmt::format("f{}", i).c_str())));
        return library ? runtime::Status{} : runtime::Status::failure(dlerror());
      });
  INFO(status.message);
  REQUIRE(status);
  return functions;
}

std::optional<int64_t> evaluate(const Expr& e, const Numbers& v) {
  return ir::evaluate(e,
                      [&](std::string_view name) -> std::optional<int64_t> {
                        return v[static_cast<size_t>(name[0] - 'a')];
                      })
      .value;
}

}  // namespace

TEST_CASE("literals have 64 bits, down to the least") {
  CHECK(source_of(0) == "0ll");
  CHECK(source_of(-7) == "(-7ll)");
  CHECK(source_of(std::numeric_limits<int64_t>::max()) == "9223372036854775807ll");
  CHECK(source_of(std::numeric_limits<int64_t>::min()) == "(-9223372036854775807ll - 1)");
}

TEST_CASE("expressions are written as operators, and divisions that round down") {
  const Expr a = Expr::var("a"), b = Expr::var("b");
  CHECK(source(Expr(3) * a + b) == "((3ll * v[0]) + v[1])");
  CHECK(source(Expr::binary(Kind::Div, a - Expr(1), b)) == "floor_div((v[0] - 1ll), v[1])");
  CHECK(source(Expr::binary(Kind::And, a, Expr::unary(Kind::Not, b))) ==
        "i64(v[0] != 0 && i64(v[1] == 0) != 0)");
}

TEST_CASE("what a compiler makes of expressions has the values of ir::evaluate") {
  std::mt19937_64 rng(23);
  std::vector<Expr> expressions = {Expr(std::numeric_limits<int64_t>::min())};
  // Each operator by itself, then trees of them.
  for (int kind = 2; kind <= static_cast<int>(Kind::Or); ++kind) {
    const auto k = static_cast<Kind>(kind);
    const Expr a = Expr::var("a"), b = Expr::var("b");
    expressions.push_back(k == Kind::Neg || k == Kind::Not ? Expr::unary(k, a)
                                                           : Expr::binary(k, a, b));
  }
  for (int i = 0; i < 400; ++i) expressions.push_back(random_expr(rng, 1 + i % 4));
  const std::vector<Function> functions = compile(expressions);
  int compared = 0;
  for (size_t i = 0; i < expressions.size(); ++i) {
    INFO(expressions[i].str());
    for (int k = 0; k < 200; ++k) {
      Numbers v;
      for (auto& x : v) x = static_cast<int64_t>(rng() % 21) - 10;
      const auto expected = evaluate(expressions[i], v);
      if (!expected) continue;  // a division by 0, of which no launch is made
      ++compared;
      if (functions[i](v.data()) == *expected) continue;
      CAPTURE(v[0], v[1], v[2]);
      CHECK(functions[i](v.data()) == *expected);
    }
  }
  CHECK(compared > 50000);
}

}  // namespace maco::codegen
