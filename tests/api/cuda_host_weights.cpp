// Params that are loaded through pinned memory.
#include <cstring>
#include <string>
#include <vector>

#include "tests/api/checkpoint.h"
#include "tests/api/cuda_host.h"

namespace maco::test {
namespace {

// For a session of cuda_host.maco.
bool has_weights(const Session& s, int rank, const Checkpoint& c, size_t row) {
  std::vector<char> w(65536);
  s.read(rank, "w", w.data(), 65536).value();
  return std::memcmp(w.data(), c.row(row), 65536) == 0;
}

TEST_CASE("params are loaded through pinned memory, each thread with streams of its own") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const int before = driver->alive();
  char mine = 0;
  driver.set_context(&mine);
  // Copies end as late as they may, so that filling memory too early shows.
  ::setenv("FAKE_LATE_COPIES", "1", 1);
  {
    const Checkpoint c;
    Session s = Session::open(*kernel).value();
    alignas(16) static std::array<char, 65536> bound;
    s.bind(1, "w", bound.data(), 65536).value();
    const int opened = driver->alive();
    s.load(c.halves("w"), c.folder()).value();
    CHECK(driver->alive() == opened + 1);  // rank 0's param
    CHECK((has_weights(s, 0, c, 0) && has_weights(s, 1, c, 256)));
    CHECK(std::memcmp(bound.data(), c.row(256), 65536) == 0);
    s.load(c.weights("w", R"("shape": [256, 128], "parts": [{"from": "w", "rows": [9, 265]}])"),
           c.folder())
        .value();
    CHECK((has_weights(s, 0, c, 9) && has_weights(s, 1, c, 9)));
    CHECK(driver.context() == &mine);
    // Also while somebody captures.
    char stream = 0;
    driver->capture(&stream, true);
    s.load(c.halves("w"), c.folder()).value();
    driver->capture(&stream, false);
    CHECK(has_weights(s, 0, c, 0));
    driver->fail_copy(2);
    const Status failed = s.load(c.halves("w"), c.folder());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == ErrorCode::RunFailed);
    CHECK_THAT(failed.error().message, Contains("could not copy to the GPU: FAKE_ERROR"));
    CHECK(driver->alive() == opened + 1);
    s.load(c.halves("w"), c.folder()).value();
    s.allocate().value();
    s.run({{"pos", 0}}).value();
  }
  CHECK(driver.context() == &mine);
  CHECK(driver->alive() == before);
  ::unsetenv("FAKE_LATE_COPIES");
}

}  // namespace
}  // namespace maco::test
