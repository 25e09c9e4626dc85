#include <catch2/catch.hpp>

#include "compiler/api/trace_times.h"

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

TEST_CASE("what is no trace is refused") {
  for (const char* text : {"", "{", "{}", "[1, 2]", R"([{"ph":"X","name":"a","ts":1,"args":{}}])",
                           R"([{"ph":"X","name":3,"ts":1,"args":{"task":1,"function":"f"}}])"}) {
    std::string error;
    CHECK_FALSE(api::read_trace(text, error));
    CHECK_THAT(error, Contains("no trace of maco-run --profile"));
  }
}

}  // namespace maco
