// What the host does around kernels on GPUs, with a driver that has none (fake_driver): whose
// memory and streams are used, that the caller's context stays, that failures come back, that all
// is freed.
#include <dlfcn.h>
#include <maco/maco.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tests/api/fake_driver/fake.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

using namespace maco::types;  // NOLINT: as applications do

class Fake {
 public:
  Fake() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library);
    controls_ = static_cast<const fake::Controls*>(dlsym(library, "fake_controls"));
    REQUIRE(controls_);
    set_ = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxSetCurrent"));
    get_ = reinterpret_cast<int (*)(void**)>(dlsym(library, "cuCtxGetCurrent"));
  }
  const fake::Controls* operator->() const { return controls_; }
  void set_context(void* context) const { set_(context); }
  void* context() const {
    void* context = nullptr;
    get_(&context);
    return context;
  }

 private:
  const fake::Controls* controls_ = nullptr;
  int (*set_)(void*) = nullptr;
  int (*get_)(void**) = nullptr;
};

// Nothing where there is no NVRTC, which has compiled it before: it doesn't take this driver.
std::optional<Kernel> kernel_of_test() {
  CompileOptions options;
  options.sms = 16;
  const std::string file = MACO_SOURCE_DIR "/tests/api/cuda_host.maco";
  Kernel kernel = compile(Graph::read(file).value(), options).value();
  const auto opened = Session::open(kernel);
  if (opened) return kernel;
  if (opened.error().message.find("NVRTC") == std::string::npos) FAIL(opened.error().message);
  std::printf("not tested here: %s\n", opened.error().message.c_str());
  return std::nullopt;
}

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
    // Elsewhere from the next launch on, with new maps.
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
    CHECK_THAT(s.launch({{"pos", 0}}, streams).error().message, Contains("is being captured"));
    driver->capture(&second, false);
    s.launch({{"pos", 0}}, streams).value();
    s.wait().value();
  }
  CHECK(driver.context() == &mine);
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
