#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "compiler/api/trace_times.h"
#include "ir/manifest.h"
#include "ir/program_text.h"

namespace maco {

using Catch::Matchers::Contains;

TEST_CASE("times of ops are read from a trace, by task and rank") {
  std::string error;
  const auto ops = api::read_trace(
      R"([{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0"}},
{"ph":"X","name":"wait","cat":"wait","pid":0,"tid":0,"ts":1,"dur":2.5,"args":{"task":7}},
{"ph":"X","name":"y","cat":"matmul","pid":0,"tid":0,"ts":3.5,"dur":4,
 "args":{"task":7,"function":"matmul","waits for pages us":0.5,"waits for packets us":0.25}},
{"ph":"X","name":"fill y","cat":"loader","pid":0,"tid":1,"ts":0,"dur":9,"args":{"task":7}},
{"ph":"X","name":"y","cat":"matmul","pid":1,"tid":0,"ts":2,"dur":3,"args":{"task":7,"function":"matmul"}},
{"ph":"s","id":1,"name":"e","pid":0,"tid":0,"ts":3}, 5, null])",
      error);
  REQUIRE(ops);
  REQUIRE(ops->size() == 1);
  const api::OpTimes& y = ops->at("y");
  CHECK(y.tasks == 2);
  CHECK(y.begin == 2);
  CHECK(y.end == 7.5);
  CHECK(y.work == 7);
  CHECK(y.longest == 4);
  CHECK(y.waits == 2.5);
  CHECK(y.pages == 0.5);
  CHECK(y.packets == 0.25);
}

TEST_CASE("a trace says of which kernel it is") {
  std::string error;
  api::TraceKernel kernel;
  const std::string task =
      R"({"ph":"X","name":"y","pid":0,"tid":0,"ts":0,"dur":1,"args":{"task":0,"function":"f"}}])";
  ir::Program program;
  program.name = "g";
  program.target = "sm_90a";
  REQUIRE(api::read_trace("[" + task, error, &kernel));
  CHECK_THAT(api::other_kernel(kernel, program), Contains("doesn't say which kernel"));
  const auto of = [&](const std::string& graph, const std::string& target,
                      const std::string& hash) {
    const auto found = api::read_trace(
        fmt::format(R"([{{"ph":"M","name":"maco_kernel","args":{{"graph":"{}","target":"{}",)"
                    R"("board":"","program":"{}"}}}},)",
                    graph, target, hash) +
            task,
        error, &kernel);
    REQUIRE(found);
    return api::other_kernel(kernel, program);
  };
  CHECK(of("g", "sm_90a", ir::text_hash(ir::print(program))).empty());
  CHECK(of("g", "cpu", "0") ==
        "it is of graph 'g' for target 'cpu', but this is graph 'g' for target 'sm_90a'");
  CHECK(of("h", "sm_90a", "0") ==
        "it is of graph 'h' for target 'sm_90a', but this is graph 'g' for target 'sm_90a'");
  CHECK_THAT(of("g", "sm_90a", "0"),
             Contains("of another kernel of graph 'g' for target 'sm_90a'"));
}

TEST_CASE("what is no trace is refused") {
  for (const char* text : {"", "{", "{}", "[1, 2]", R"([{"ph":"X","name":"a","ts":1,"args":{}}])",
                           R"([{"ph":"X","name":3,"ts":1,"args":{"task":1,"function":"f"}}])"}) {
    std::string error;
    CHECK_FALSE(api::read_trace(text, error));
    CHECK_THAT(error, Contains("no trace of maco-run --profile"));
  }
}

}  // namespace maco
