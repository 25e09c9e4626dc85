// What compiling does grows as the graph does: counted, not timed. The counts are the passes' own
// (PassContext::statistics) and the bytes of kernel.cu. The first layers may be different; of those
// behind them each is as much as the one before.
#include <fmt/format.h>

#include <map>
#include <string>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using Counts = std::map<std::string, int64_t>;

Counts compiled(const std::string& text) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("g.maco", text), diagnostics);
  api::Options options;
  options.target = "sm_90a";
  const auto result = graph ? api::compile(*graph, options, diagnostics) : std::nullopt;
  INFO(diagnostics.render());
  REQUIRE(result);
  Counts counts = result->statistics;
  counts["bytes of the kernel"] = static_cast<int64_t>(result->kernel.size());
  return counts;
}

// Layers of a tensor-parallel model without attention, on eight ranks.
std::string layers(int rows, int count) {
  std::string text = fmt::format("graph g(world = 8) {{\n  input x_0 : bf16[{}, 8192]\n", rows);
  for (int i = 0; i < count; ++i)
    text += fmt::format(R"(
  param n1_{0} : bf16[8192]
  param wqkv_{0} : bf16[1280, 8192]
  param wo_{0} : bf16[8192, 1024]
  param n2_{0} : bf16[8192]
  param wgu_{0} : bf16[7168, 8192]
  param wd_{0} : bf16[8192, 3584]
  h1_{0} = rmsnorm(x_{0}, n1_{0})
  qkv_{0} = matmul(h1_{0}, wqkv_{0}, transpose_b = true)
  q_{0} = slice(qkv_{0}, axis = 1, begin = 0, end = 1024)
  o_{0} = matmul(q_{0}, wo_{0}, transpose_b = true)
  os_{0} = allreduce(o_{0})
  r_{0} = add(x_{0}, os_{0})
  h2_{0} = rmsnorm(r_{0}, n2_{0})
  gu_{0} = matmul(h2_{0}, wgu_{0}, transpose_b = true)
  g_{0}, u_{0} = split(gu_{0}, axis = 1)
  a_{0} = swiglu(g_{0}, u_{0})
  d_{0} = matmul(a_{0}, wd_{0}, transpose_b = true)
  ds_{0} = allreduce(d_{0})
  x_{1} = add(r_{0}, ds_{0})
)",
                        i, i + 1);
  return text + fmt::format("  output y = copy(x_{})\n}}\n", count);
}

struct Case {
  int rows, layers;
  std::map<std::string, double> most;  // of a further task
};
const Case kCases[] = {
    {.rows = 1,
     .layers = 8,
     .most = {{"regions compared by send-packets", 150},
              {"clocks joined by insert-sync", 0.8},
              {"clocks joined by prune-sync", 0.8},
              {"clocks joined by share-slots", 4},
              {"clocks joined by verify", 5},
              {"accesses compared by verify", 22},
              {"dependencies", 1},
              {"bytes of the kernel", 30}}},
    {.rows = 16,
     .layers = 8,
     .most = {{"regions compared by send-packets", 0},
              {"clocks joined by insert-sync", 18},
              {"clocks joined by prune-sync", 56},
              {"clocks joined by share-slots", 45},
              {"clocks joined by verify", 8},
              {"accesses compared by verify", 34},
              {"dependencies", 350},
              {"bytes of the kernel", 76}}},
    {.rows = 512,
     .layers = 4,
     .most = {{"regions compared by send-packets", 0},
              {"clocks joined by insert-sync", 86},
              {"clocks joined by prune-sync", 133},
              {"clocks joined by share-slots", 90},
              {"clocks joined by verify", 44},
              {"accesses compared by verify", 87},
              {"dependencies", 120},
              {"bytes of the kernel", 98}}},
};

TEST_CASE("as many layers again are as much work again") {
  for (const Case& c : kCases) {
    const Counts once = compiled(layers(c.rows, c.layers)),
                 twice = compiled(layers(c.rows, 2 * c.layers)),
                 thrice = compiled(layers(c.rows, 3 * c.layers));
    const auto tasks = static_cast<double>(thrice.at("tasks") - twice.at("tasks"));
    for (const auto& [count, most] : c.most) {
      const auto second = static_cast<double>(twice.at(count) - once.at(count)),
                 third = static_cast<double>(thrice.at(count) - twice.at(count));
      INFO(fmt::format("{} rows: {}: {}, then {}, of {} tasks", c.rows, count, second, third,
                       tasks));
      // Numbers get longer.
      CHECK(third <= 1.05 * second);
      CHECK(third <= most * tasks);
    }
  }
}

}  // namespace
}  // namespace maco::test
