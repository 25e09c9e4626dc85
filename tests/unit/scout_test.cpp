// Loaders that load as soon as waits are over, before the consumers come. What the loader's own CTA
// writes for them needs no wait: a row of the kernel's tables says how far back the writer is.
#include <regex>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "ir/manifest.h"
#include "runtime/cpu/session.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using Rows = std::vector<float>;

// The second product's weights are the first one's result; the first of them that its loader takes
// have all columns, which the last task writes.
const char* const kGraph = R"(graph chain {
  input x : f32[64, 48]
  param w : f32[80, 48]
  input z : f32[24, 64]
  h = matmul(x, w, transpose_b = true)
  output y = matmul(z, h)
})";

std::string compiled(int sms) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("chain.maco", kGraph), diagnostics);
  api::Options options;
  options.target = "cpu";
  options.sms = sms;
  const auto made = graph ? api::compile(*graph, options, diagnostics) : std::nullopt;
  INFO(diagnostics.render());
  REQUIRE(made);
  REQUIRE(made->kernel.find("kScouts = true") != std::string::npos);
  return made->kernel;
}

// The kernel as it would be if no row told of a writer.
std::string without_writers(const std::string& kernel) {
  size_t code = 0;
  while (kernel.compare(code, 7, "//@maco") == 0) code = kernel.find('\n', code) + 1;
  const size_t begin = kernel.find("const TaskRow tasks[] =", code), end = kernel.find("};", begin);
  const std::regex row(R"(\{(\d+(,\d+){6}),\d+\})");  // all eight numbers
  const std::string table = kernel.substr(begin, end - begin),
                    changed = kernel.substr(code, begin - code) +
                              std::regex_replace(table, row, "{$1}") + kernel.substr(end);
  REQUIRE(changed != kernel.substr(code));
  ir::Manifest manifest = *ir::parse_manifest(kernel).manifest;
  manifest.code_hash = ir::code_hash(changed);
  return ir::print_manifest(manifest) + changed;
}

// y of a launch whose fibres take turns by `seed`.
Rows run(const std::string& kernel, uint64_t seed) {
  runtime::SessionOptions how;
  how.replay = seed;
  runtime::Status status;
  const auto session = runtime::make_cpu_session(kernel, how, status);
  INFO(status.message);
  REQUIRE(session);
  const auto write = [&](size_t tensor, size_t count) {
    Rows values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % 11) - 5;
    REQUIRE(session->write(0, tensor, values.data(), count * 4));
  };
  write(0, 64 * 48);
  write(1, 80 * 48);
  write(2, 24 * 64);
  const runtime::Status launched = session->launch({});
  INFO(launched.message);
  REQUIRE(launched.ok);
  Rows y(24 * 80);
  REQUIRE(session->read(0, 3, y.data(), y.size() * 4));
  return y;
}

}  // namespace

TEST_CASE("a loader ahead of its consumers waits for what its own CTA writes") {
  const std::string kernel = compiled(3), wrong = without_writers(kernel);
  const Rows expected = run(kernel, 1);
  bool told = false;
  for (uint64_t seed = 2; seed < 12; ++seed) {
    CHECK(run(kernel, seed) == expected);
    told = told || run(wrong, seed) != expected;
  }
  CHECK(told);
}

}  // namespace maco::test
