// Tests the host's work around kernels on GPUs, with a driver that has no GPU (fake_driver): whose
// memory and streams are used, that the caller's context stays, that failures are reported, and
// that everything is freed.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/cuda_host.h"

namespace maco::test {
namespace {

TEST_CASE("launches go to the caller's streams and memory, and its context stays") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const int before = driver->alive();
  char mine = 0;
  driver.set_context(&mine);
  {
    Session s = Session::open(*kernel).value();
    alignas(16) std::array<std::array<char, 65536>, 2> x{}, w{}, y{};
    alignas(16) std::array<std::array<int32_t, 4>, 2> i{};
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<size_t>(rank);
      s.bind(rank, "x", x[r].data(), 65536).value();
      s.bind(rank, "w", w[r].data(), 65536).value();
      s.bind(rank, "y", y[r].data(), 65536).value();
      s.bind(rank, "i", i[r].data(), 12).value();
    }
    char first = 0, second = 0;
    void* const streams[] = {&first, &second};
    const int launched = driver->launches();
    s.launch({{"pos", 1}}, streams).value();
    s.launch({{"pos", 2}}, streams).value();
    s.launch({{"pos", 2}}).value();
    CHECK(s.ended().value());
    REQUIRE(driver->launches() == launched + 6);
    for (int at = 0; at < 6; ++at) {
      const fake::Launched l = driver->launch(launched + at);
      INFO("launch " << at << " rank " << l.rank);
      CHECK(l.device == l.rank);
      if (at < 4)
        CHECK(l.stream == streams[l.rank]);
      else
        CHECK((l.stream != &first && l.stream != &second && l.stream != nullptr));
      CHECK(l.epoch == driver->launch(launched).epoch + static_cast<unsigned>(at / 2));
      CHECK(l.tensors[0] == x[static_cast<size_t>(l.rank)].data());
      CHECK(l.tensors[1] == w[static_cast<size_t>(l.rank)].data());
    }
    // At another address from the next launch on, with new maps.
    const int maps = driver->maps();
    s.launch({{"pos", 0}}, streams).value();
    CHECK(driver->maps() == maps);
    s.bind(1, "x", y[0].data(), 65536).value();
    s.run({{"pos", 0}}).value();
    CHECK(driver->maps() > maps);
    for (int at = driver->launches() - 2; at < driver->launches(); ++at)
      if (driver->launch(at).rank == 1) CHECK(driver->launch(at).tensors[0] == y[0].data());
    CHECK(driver.context() == &mine);
    s.write(0, "i", i[0].data(), 12).value();
    s.bench({{"pos", 0}}, 3).value();
    CHECK(driver.context() == &mine);

    void* const one[] = {&first};
    CHECK_THAT(s.launch({{"pos", 0}}, one).error().message, Contains("1 streams for 2 ranks"));
    driver->capture(&second, true);
    CHECK_THAT(s.launch({{"pos", 0}}, streams).error().message,
               Contains("1 of 2 streams are being captured"));
    driver->capture(&second, false);
    s.launch({{"pos", 0}}, streams).value();
    CHECK_FALSE(driver->launch(driver->launches() - 1).numbered);
    s.wait().value();
  }
  CHECK(driver.context() == &mine);
  CHECK(driver->alive() == before);
}

TEST_CASE("a launch can have tensors elsewhere, and copies nothing where one before had them") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const int before = driver->alive();
  {
    Session s = Session::open(*kernel).value();
    constexpr size_t kSets = 20;  // more than tables are kept
    struct alignas(16) Memory {
      std::array<char, 65536> x, y;
    };
    std::vector<Memory> memory(2 * kSets);
    alignas(16) std::array<std::array<char, 65536>, 2> w{};
    alignas(16) std::array<std::array<int32_t, 4>, 2> i{};
    for (int rank = 0; rank < 2; ++rank) {
      s.bind(rank, "w", w[static_cast<size_t>(rank)].data(), 65536).value();
      s.bind(rank, "i", i[static_cast<size_t>(rank)].data(), 12).value();
    }
    char first = 0, second = 0;
    void* const streams[] = {&first, &second};
    // Whether the last two launches, one on each rank, had set `set`.
    const auto had = [&](size_t set) {
      for (int at = driver->launches() - 2; at < driver->launches(); ++at) {
        const fake::Launched l = driver->launch(at);
        const auto r = static_cast<size_t>(l.rank);
        CHECK(l.stream == streams[r]);
        CHECK(l.tensors[0] == memory[2 * set + r].x.data());
        CHECK(l.tensors[1] == w[r].data());
        CHECK(l.tensors[2] == i[r].data());
        CHECK(l.tensors[3] == memory[2 * set + r].y.data());
      }
    };
    const auto put = [&](size_t set) {
      void* const x[] = {memory[2 * set].x.data(), memory[2 * set + 1].x.data()};
      void* const y[] = {memory[2 * set].y.data(), memory[2 * set + 1].y.data()};
      const Place places[] = {{3, y}, {0, x}};
      s.launch({{"pos", 1}}, streams, places).value();
    };
    const auto launch = [&](size_t set) {
      put(set);
      had(set);
    };
    CHECK_THAT(s.launch({{"pos", 1}}, streams).error().message, Contains("has no memory"));
    launch(0);
    int maps = driver->maps();
    launch(0);
    CHECK(driver->maps() == maps);
    launch(1);
    CHECK(driver->maps() > maps);
    maps = driver->maps();
    launch(0);
    launch(1);
    CHECK(driver->maps() == maps);
    // In tables that are overwritten, only the tensors that moved are described again.
    for (size_t set = 2; set < kSets; ++set) launch(set);
    maps = driver->maps();
    launch(0);
    CHECK(driver->maps() == maps + 2);  // x, on two ranks
    launch(kSets - 1);
    CHECK(driver->maps() == maps + 2);
    // A captured launch keeps a table of its own.
    for (void* stream : streams) driver->capture(stream, true);
    put(2);
    for (void* stream : streams) driver->capture(stream, false);
    for (void* stream : streams) driver->replay(stream);
    had(2);
    s.wait().value();
    for (size_t set = 0; set < kSets; ++set) launch(set);
    s.wait().value();
    for (void* stream : streams) driver->replay(stream);
    had(2);
    s.wait().value();
  }
  CHECK(driver->alive() == before);
}

TEST_CASE("a launch that stopped says so at the next call, and then the session runs again") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const int before = driver->alive();
  {
    Session s = Session::open(*kernel).value();
    s.allocate().value();
    driver->stop_next(1);
    s.launch({{"pos", 0}}).value();
    const Status failed = s.launch({{"pos", 0}});
    REQUIRE_FALSE(failed);
    CHECK_THAT(failed.error().message, Contains("rank 1") && Contains("index 9 is outside [0, 4)"));
    s.launch({{"pos", 0}}).value();
    s.wait().value();
    driver->stop_next(0);
    CHECK_THAT(s.run({{"pos", 0}}).error().message, Contains("rank 0"));
    s.run({{"pos", 0}}).value();
    driver->stop_next(0);
    s.launch({{"pos", 0}}).value();  // and nobody asks
  }
  CHECK(driver->alive() == before);
}

TEST_CASE("where a rank doesn't start, the others are told to leave, and all is reset") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  Session s = Session::open(*kernel).value();
  s.allocate().value();
  for (const bool waits : {false, true}) {
    s.run({{"pos", 0}}).value();
    driver->fail_next(1);
    const int resets = driver->resets();
    CHECK_THAT((waits ? s.run({{"pos", 0}}) : s.launch({{"pos", 0}})).error().message,
               Contains("rank 1 on GPU 1: could not launch the kernel"));
    CHECK(driver->resets() == resets + 2);
  }
  s.run({{"pos", 0}}).value();
}

TEST_CASE("another thread stops launches that are waited for") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  Session s = Session::open(*kernel).value();
  s.allocate().value();
  s.stop();  // nobody waits
  s.run({{"pos", 0}}).value();
  for (const bool launched : {false, true}) {
    driver->hold_next(1);
    if (launched) s.launch({{"pos", 0}}).value();
    std::atomic<bool> ended{false};
    std::thread other([&] {
      while (!ended) {
        s.stop();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    const Status status = launched ? s.wait() : s.run({{"pos", 0}});
    ended = true;
    other.join();
    CHECK_THAT(status.error().message, Contains("stopped by its caller"));
    s.run({{"pos", 0}}).value();
  }
}

TEST_CASE("as many CTAs must fit at once as a kernel has, and whole clusters of them") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  SessionOptions two;
  two.ranks_per_gpu = 2;
  const Set cluster("FAKE_CLUSTER", "2");
  {
    const Set clusters("FAKE_CLUSTERS", "8");
    CHECK(Session::open(*kernel));
    CHECK_THAT(Session::open(*kernel, two).error().message,
               Contains("32 CTAs (2 ranks of 16) must be resident at once, but GPU 0 (Fake H200) "
                        "holds 16"));
  }
  {
    const Set clusters("FAKE_CLUSTERS", "16");
    CHECK(Session::open(*kernel, two));
  }
  const Set clusters("FAKE_CLUSTERS", "7");
  CHECK_THAT(Session::open(*kernel).error().message,
             Contains("16 CTAs (1 rank of 16) must be resident at once, but GPU 0 (Fake H200) "
                      "holds 14"));
}

TEST_CASE("sessions on GPUs open and close without a trace") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const int before = driver->alive();
  for (int n = 0; n < 100; ++n) {
    SessionOptions options;
    options.ranks_per_gpu = 1 + n % 2;
    Session s = Session::open(*kernel, options).value();
    s.allocate().value();
    s.run({{"pos", 0}}).value();
  }
  CHECK(driver->alive() == before);
}

}  // namespace
}  // namespace maco::test
