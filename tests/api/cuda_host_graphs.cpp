// Launches that graphs contain, or that find dims and scalars in memory: they number themselves.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/api/cuda_host.h"

namespace maco::test {
namespace {

// A session whose launches are captured on two streams, `pos` in memory.
struct Captured {
  const Fake& driver;
  char first = 0, second = 0;
  void* streams[2] = {&first, &second};
  int32_t pos[2] = {0, 0};
  Session session;

  Captured(const Fake& fake, const Kernel& kernel, const SessionOptions& options = {})
      : driver(fake), session(Session::open(kernel, options).value()) {
    session.allocate().value();
  }
  Values in_memory() const { return {{"pos", std::vector<const int32_t*>{&pos[0], &pos[1]}}}; }
  void capturing(bool on) const {
    for (void* stream : streams) driver->capture(stream, on);
  }
  void capture(const Values& values) {
    capturing(true);
    session.launch(values, streams).value();
    capturing(false);
  }
  void replay(int32_t at) {
    pos[0] = pos[1] = at;
    for (void* stream : streams) driver->replay(stream);
  }
  fake::Launched last() const { return driver->launch(driver->launches() - 1); }
};

TEST_CASE("launches of a captured graph have numbers of their own, and find what is in memory") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const int before = driver->alive();
  {
    Captured c(driver, *kernel);
    c.session.launch({{"pos", 1}}).value();
    const uint32_t epoch = c.last().epoch;
    const int launched = driver->launches();
    c.capture(c.in_memory());
    CHECK(driver->launches() == launched);  // nothing ran
    for (int32_t at : {3, 0, 4}) {
      c.replay(at);
      CHECK((c.last().numbered && c.last().variable == at));
      CHECK(c.last().stream == &c.second);
    }
    CHECK(driver->launches() == launched + 6);
    CHECK(c.last().epoch == epoch + 3);
    // The session's other launches continue the numbering.
    c.session.run({{"pos", 2}}).value();
    CHECK((c.last().epoch == epoch + 4 && c.last().variable == 2));
    c.session.launch({{"pos", 1}}, c.streams).value();
    c.session.bench({{"pos", 1}}, 2).value();
    const uint32_t others = c.last().epoch;
    c.replay(1);
    CHECK(c.last().epoch == others + 1);
    // Values given as numbers stay the same.
    c.capture({{"pos", 2}});
    c.replay(4);
    CHECK(c.last().variable == 2);
    // Launches find a tensor's new memory.
    alignas(16) static std::array<char, 65536> x;
    c.session.bind(0, "x", x.data(), 65536).value();
    c.replay(0);
    CHECK(driver->launch(driver->launches() - 2).tensors[0] == x.data());
    // Also after a launch that was running, once that was awaited.
    c.session.launch({{"pos", 1}}).value();
    c.session.bind(1, "x", x.data(), 65536).value();
    CHECK(c.session.ended().value());
    c.replay(0);
    CHECK(c.last().tensors[0] == x.data());
    c.session.wait().value();
  }
  CHECK(driver->alive() == before);
}

TEST_CASE("numbered launches begin early where code and driver can, and no rank needs their SMs") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const auto early = [&](const SessionOptions& options = {}) {
    Captured c(driver, *kernel, options);
    c.session.launch({{"pos", 1}}).value();
    CHECK_FALSE(c.last().early);
    c.capture(c.in_memory());
    c.replay(2);
    CHECK(c.last().numbered);
    return c.last().early;
  };
  CHECK(early());
  SessionOptions two;
  two.ranks_per_gpu = 2;
  CHECK_FALSE(early(two));
  {
    const Set code("FAKE_CODE", "80");
    CHECK_FALSE(early());
  }
  const Set version("FAKE_VERSION", "12030");
  CHECK_FALSE(early());
}

TEST_CASE("a captured launch that stops is told of, and those behind it wait for that") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  Captured c(driver, *kernel);
  c.capture(c.in_memory());
  // Out of its range, on all ranks.
  for (const bool by_launch : {false, true}) {
    c.replay(1);
    const int launched = driver->launches();
    c.replay(5);
    c.replay(1);
    CHECK(driver->launches() == launched);
    const Status told = by_launch ? c.session.launch({{"pos", 0}}) : c.session.wait();
    REQUIRE_FALSE(told);
    CHECK_THAT(told.error().message,
               Contains("rank 0: scalar 'pos' is 5, but must be from 0 to 4") &&
                   Contains("rank 1: scalar 'pos' is 5"));
    c.replay(3);
    CHECK(driver->launches() == launched + 2);
    c.session.wait().value();
  }
  // A failure in a task of one rank.
  driver->stop_next(0);
  c.replay(1);
  const int launched = driver->launches();
  c.replay(1);
  CHECK(driver->launches() == launched);
  c.capturing(true);
  CHECK_THAT(c.session.launch(c.in_memory(), c.streams).error().message,
             Contains("a launch has stopped"));
  CHECK_FALSE(c.session.wait());  // nothing can be waited for
  c.capturing(false);
  const auto told = c.session.ended();
  REQUIRE_FALSE(told);
  CHECK_THAT(told.error().message, Contains("rank 0") && Contains("index 9 is outside [0, 4)"));
  c.capture(c.in_memory());
  c.replay(2);
  CHECK(driver->launches() == launched + 2);
  c.session.run({{"pos", 0}}).value();
}

TEST_CASE("counters are reset in time, also where graphs use them up") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  Captured c(driver, *kernel);
  c.capture(c.in_memory());
  c.replay(1);
  const auto set_left = [&](uint32_t left) {
    for (int rank : {0, 1}) driver->set_left(rank, left);
  };
  int resets = driver->resets();
  c.session.wait().value();
  CHECK(driver->resets() == resets);
  set_left(1000);
  c.session.wait().value();
  CHECK(driver->resets() == resets + 2);
  c.replay(1);
  // If nobody waits, launches stop at the limit.
  set_left(1);
  c.replay(1);
  const int launched = driver->launches();
  c.replay(1);
  CHECK(driver->launches() == launched);
  CHECK_THAT(c.session.wait().error().message, Contains("launches without a wait"));
  c.replay(1);
  CHECK(driver->launches() == launched + 2);
}

TEST_CASE("what is in memory goes to ordinary launches, too; wrong addresses are refused") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  Captured c(driver, *kernel);
  c.pos[0] = c.pos[1] = 4;
  c.session.run(c.in_memory()).value();
  CHECK((c.last().numbered && c.last().variable == 4));
  c.pos[1] = 7;
  c.session.launch(c.in_memory()).value();
  CHECK_THAT(c.session.wait().error().message, Contains("scalar 'pos' is 7"));
  const auto refused = [&](std::vector<const int32_t*> at) {
    const Status status = c.session.launch({{"pos", std::move(at)}});
    REQUIRE_FALSE(status);
    CHECK(status.error().code == ErrorCode::InvalidArgument);
    return status.error().message;
  };
  CHECK_THAT(refused({&c.pos[0]}), Contains("'pos' has 1 addresses for 2 ranks"));
  CHECK_THAT(refused({&c.pos[0], nullptr}), Contains("'pos' of rank 1 is at"));
  CHECK_THAT(c.session.bench(c.in_memory(), 1).error().message, Contains("a measurement"));
}

}  // namespace
}  // namespace maco::test
