// What compiling does grows as the graph does: counted, not timed. The counts are the passes' own
// (PassContext::statistics) and the bytes of kernel.cu. The first layers may be different; of those
// behind them each is as much as the one before.
#include <fmt/format.h>

#include <array>
#include <map>
#include <string>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using Counts = std::map<std::string, int64_t>;

Counts compiled(const std::string& text, int64_t sms = 0) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("g.maco", text), diagnostics);
  api::Options options;
  options.target = "sm_90a";
  options.sms = sms;
  const auto result = graph ? api::compile(*graph, options, diagnostics) : std::nullopt;
  INFO(diagnostics.render());
  REQUIRE(result);
  Counts counts = result->statistics;
  counts["bytes of the kernel"] = static_cast<int64_t>(result->kernel.size());
  return counts;
}

// Layers of a tensor-parallel model without attention, as one of eight ranks has them.
std::string layers(int rows, int count, int ranks = 8) {
  std::string text =
      fmt::format("graph g(world = {}) {{\n  input x_0 : bf16[{}, 8192]\n", ranks, rows);
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
     .most = {{"regions compared by send-packets", 140},
              {"searches by schedule", 2},
              {"SMs compared by schedule", 131},
              {"searches by insert-sync", 0.4},
              {"clocks joined by insert-sync", 0.1},
              {"clocks joined by prune-sync", 0.1},
              {"clocks joined by share-slots", 3.3},
              {"clocks joined by verify", 4.6},
              {"accesses compared by verify", 20},
              {"dependencies", 0.9},
              {"bytes of the kernel", 28}}},
    {.rows = 16,
     .layers = 8,
     .most = {{"regions compared by send-packets", 0},
              {"searches by schedule", 8.5},
              {"SMs compared by schedule", 131},
              {"searches by insert-sync", 8.5},
              {"clocks joined by insert-sync", 2.1},
              {"clocks joined by prune-sync", 41},
              {"clocks joined by share-slots", 35},
              {"clocks joined by verify", 7.4},
              {"accesses compared by verify", 32},
              {"dependencies", 320},
              {"bytes of the kernel", 61}}},
    {.rows = 512,
     .layers = 4,
     .most = {{"regions compared by send-packets", 0},
              {"searches by schedule", 9},
              {"SMs compared by schedule", 131},
              {"searches by insert-sync", 9},
              {"clocks joined by insert-sync", 9.5},
              {"clocks joined by prune-sync", 83},
              {"clocks joined by share-slots", 60},
              {"clocks joined by verify", 41},
              {"accesses compared by verify", 81},
              {"dependencies", 113},
              {"bytes of the kernel", 79}}},
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

// Of a further task of further layers, on so many ranks or SMs.
std::map<std::string, double> of_a_task(int ranks, int64_t sms) {
  const Counts once = compiled(layers(16, 4, ranks), sms),
               twice = compiled(layers(16, 8, ranks), sms);
  std::map<std::string, double> found;
  for (const auto& [name, count] : twice)
    found[name] = static_cast<double>(count - once.at(name)) /
                  static_cast<double>(twice.at("tasks") - once.at("tasks"));
  return found;
}

// Bounds of what a further task takes, at three sizes.
using Bounds = std::map<std::string, std::array<double, 3>>;
void check(const Bounds& bounds, const std::array<std::map<std::string, double>, 3>& found) {
  for (const auto& [count, most] : bounds)
    for (size_t i = 0; i < most.size(); ++i) {
      INFO(fmt::format("size {}: {}: {}", i, count, found[i].at(count)));
      CHECK(found[i].at(count) <= most[i]);
    }
}

// On two and four ranks every task runs on all of them, on eight each rank has tiles of its own.
TEST_CASE("what a task takes on 2, 4 and 8 ranks") {
  check({{"searches by schedule", {5, 5, 8.5}},
         {"SMs compared by schedule", {131, 131, 131}},
         {"searches by insert-sync", {4.5, 4.5, 8.5}},
         {"clocks joined by insert-sync", {0.22, 0.22, 2.1}},
         {"clocks joined by prune-sync", {0.22, 0.22, 41}},
         {"clocks joined by share-slots", {1.1, 1.6, 35}},
         {"clocks joined by verify", {2, 2.6, 7.4}},
         {"accesses compared by verify", {7.6, 11.5, 32}},
         {"bytes of the kernel", {28, 28, 61}}},
        {of_a_task(2, 0), of_a_task(4, 0), of_a_task(8, 0)});
}

TEST_CASE("what a task takes on 33, 66 and 132 SMs") {
  check({{"temporaries compared by plan-memory", {1.3, 1.2, 0.75}},
         {"searches by schedule", {8.5, 8.5, 8.5}},
         {"SMs compared by schedule", {32, 65, 131}},
         {"searches by insert-sync", {8.5, 8.5, 8.5}},
         {"clocks joined by insert-sync", {2.7, 2.1, 2.1}},
         {"clocks joined by prune-sync", {32, 24, 41}},
         {"clocks joined by share-slots", {26, 20, 35}},
         {"clocks joined by verify", {8, 6.5, 7.4}},
         {"accesses compared by verify", {30, 28, 32}},
         {"dependencies", {155, 182, 290}},
         {"bytes of the kernel", {61, 61, 61}}},
        {of_a_task(8, 33), of_a_task(8, 66), of_a_task(8, 132)});
}

}  // namespace
}  // namespace maco::test
