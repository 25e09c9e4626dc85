// Tests the host's work around kernels on GPUs, with a driver that has no GPU (fake_driver): whose
// memory and streams are used, that the caller's context stays, that failures are reported, and
// that everything is freed.
#include <dlfcn.h>
#include <maco/maco.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/api/checkpoint.h"
#include "tests/api/fake_driver/fake.h"
#include "tests/catch.h"
#include "tests/paths.h"

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

// Nothing if there is no NVRTC, which has compiled the kernel before, as it doesn't take this
// driver.
std::optional<Kernel> kernel_of_test(const std::string& name = "cuda_host") {
  CompileOptions options;
  options.sms = 16;
  const std::string file = test::source_path("tests/api/" + name + ".maco");
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

// Sets an environment variable, on which the driver's answers depend, while it lives.
struct Set {
  const char* name;
  Set(const char* n, const char* value) : name(n) { ::setenv(name, value, 1); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  ~Set() { ::unsetenv(name); }
};

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

const fake::NcclControls* fake_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  REQUIRE(library);
  const auto* controls =
      static_cast<const fake::NcclControls*>(dlsym(library, "fake_nccl_controls"));
  REQUIRE(controls);
  return controls;
}

TEST_CASE("collectives go to NCCL, launch by launch, on the SMs that are left") {
  const Fake driver;
  const auto kernel = kernel_of_test("cuda_handed");
  if (!kernel) return;
  const fake::NcclControls* nccl = fake_nccl();
  const int before = driver->alive();
  const auto calls_of = [&](int rank) {
    std::vector<fake::NcclCall> calls;
    nccl->take(calls);
    std::vector<std::string> texts;
    for (const fake::NcclCall& c : calls)
      if (c.rank == rank)
        texts.push_back(c.what + " " + std::to_string(c.count) + " of " + std::to_string(c.type) +
                        ": " + std::to_string(c.more));
    return texts;
  };
  // Types: 9 bf16, 7 f32, 3 the word of who meets; reductions: 4 avg, 2 max.
  using Texts = std::vector<std::string>;
  const auto expected = [](int rank, const std::string& elements) {
    const std::string other = std::to_string(1 - rank);
    Texts all = {"allreduce " + elements + " of 9: 4",
                 "send 32 of 7: " + other,
                 "recv 32 of 7: " + other,
                 "allreduce 1 of 3: 0",
                 "send 16 of 7: 0",
                 "recv 16 of 7: 0",
                 "send 16 of 7: 1",
                 "recv 16 of 7: 1",
                 "reduce_scatter 16 of 7: 2",
                 "broadcast " + elements + " of 9: 1",
                 "allreduce 1 of 3: 0"};
    return all;
  };
  calls_of(0);  // drops the calls made when opening
  {
    Session s = Session::open(*kernel).value();
    // Once before all launches, when nothing waits.
    Texts first = expected(1, "320");
    first.push_back("allreduce 1 of 3: 0");
    CHECK(calls_of(1) == first);
    s.allocate().value();
    s.run({{"n", 3}}).value();
    CHECK(calls_of(0) == expected(0, "192"));
    s.launch({{"n", 1}}).value();
    s.wait().value();
    CHECK(calls_of(1) == expected(1, "64"));
    s.bench({{"n", 5}}, 2).value();
    std::vector<fake::NcclCall> calls;
    nccl->take(calls);
    REQUIRE(calls.size() == 2 * 11 * (3 + 2));
    CHECK(calls.front().sms == 131);  // nothing computes: one SM hands over
    CHECK(nccl->communicators() == 2);
    {
      // Another session of the same ranks uses the existing communicator.
      Session other = Session::open(*kernel).value();
      CHECK(nccl->communicators() == 2);
      other.allocate().value();
      other.run({{"n", 3}}).value();
      calls_of(0);
    }
    CHECK(nccl->communicators() == 2);

    char first_stream = 0, second_stream = 0;
    void* const streams[] = {&first_stream, &second_stream};
    driver->capture(&first_stream, true);
    driver->capture(&second_stream, true);
    CHECK_THAT(s.launch({{"n", 1}}, streams).error().message,
               Contains("'a' is handed over to NCCL, which can't be captured"));
    driver->capture(&first_stream, false);
    driver->capture(&second_stream, false);
    const int32_t n[] = {2, 2};
    CHECK_THAT(s.launch({{"n", std::vector<const int32_t*>{&n[0], &n[1]}}}).error().message,
               Contains("depends on dims or scalars, which have to come from the host"));
    s.launch({{"n", 1}}, streams).value();
    s.wait().value();
  }
  CHECK(nccl->communicators() == 0);
  CHECK(driver->alive() == before);
  SessionOptions both;
  both.ranks_per_gpu = 2;
  CHECK_THAT(Session::open(*kernel, both).error().message, Contains("takes one rank a GPU, not 2"));
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

// Runs `body` in a process for each of two ranks; it returns what is wrong, or "".
void in_processes(const std::function<std::string(int)>& body) {
  static int groups = 0;
  const std::string group = std::to_string(::getpid()) + "." + std::to_string(groups++);
  std::array<pid_t, 2> children{};
  std::array<std::array<int, 2>, 2> pipes{};
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(::pipe(pipes[rank].data()) == 0);
    children[rank] = ::fork();
    REQUIRE(children[rank] >= 0);
    if (children[rank] != 0) continue;
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", "2", 1);
    ::setenv("MACO_GROUP", group.c_str(), 1);
    const std::string wrong = body(static_cast<int>(rank));
    const ssize_t sent = ::write(pipes[rank][1], wrong.data(), wrong.size());
    ::_exit(wrong.empty() ? 0 : sent < 0 ? 2 : 1);
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    int status = 0;
    REQUIRE(::waitpid(children[rank], &status, 0) == children[rank]);
    ::close(pipes[rank][1]);
    std::string wrong(4096, ' ');
    const ssize_t got = ::read(pipes[rank][0], wrong.data(), wrong.size());
    ::close(pipes[rank][0]);
    wrong.resize(got > 0 ? static_cast<size_t>(got) : 0);
    INFO("rank " << rank << ": " << wrong);
    CHECK(status == 0);
  }
}
std::string expect(bool good, const std::string& what) { return good ? "" : what + "\n"; }
std::string expect(const Status& status, const std::string& says, const std::string& what) {
  if (status) return what + ": went well\n";
  return expect(status.error().message.find(says) != std::string::npos,
                what + ": " + status.error().message);
}
SessionOptions process_a_rank() {
  SessionOptions options;
  options.process_a_rank = true;
  options.timeout = std::chrono::seconds(5);
  return options;
}

// The ranks' addresses of a session's symmetric memory, as its next launch gets them.
std::array<char*, 2> symmetric_of(const Fake& driver, Session& s) {
  s.run({{"pos", 0}}).value();
  const fake::Launched last = driver->launch(driver->launches() - 1);
  return {last.symmetric[0], last.symmetric[1]};
}

TEST_CASE("sessions of one process share a piece of symmetric memory, each a part of its own") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  std::vector<Session> sessions;
  std::vector<std::array<char*, 2>> places;
  for (int n = 0; n < 4; ++n) {
    sessions.push_back(Session::open(*kernel).value());
    sessions.back().allocate().value();
    places.push_back(symmetric_of(driver, sessions.back()));
    for (char* at : places.back()) at[5] = static_cast<char>(n + 1);
  }
  for (size_t n = 0; n < places.size(); ++n)
    for (const char* at : places[n]) CHECK(at[5] == static_cast<char>(n + 1));
  constexpr ptrdiff_t kUnit = 65536;
  for (size_t n = 1; n < places.size(); ++n)
    for (size_t r = 0; r < 2; ++r) CHECK(places[n][r] - places[n - 1][r] == kUnit);
  // A part that was released is used again, cleared.
  sessions.erase(sessions.begin() + 1);
  Session again = Session::open(*kernel).value();
  again.allocate().value();
  const auto place = symmetric_of(driver, again);
  CHECK(place == places[1]);
  CHECK((place[0][5] == 0 && place[1][5] == 0));
}

TEST_CASE("a process a rank: sessions share a piece where the same part is free on all ranks") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  in_processes([&](int rank) {
    const int before = driver->alive();
    std::string wrong;
    {
      std::vector<Session> sessions;
      std::vector<std::array<char*, 2>> places;
      std::vector<int> more;
      for (int n = 0; n < 3; ++n) {
        const int had = driver->alive();
        sessions.push_back(Session::open(*kernel, process_a_rank()).value());
        more.push_back(driver->alive() - had);
        sessions.back().allocate().value();
        places.push_back(symmetric_of(driver, sessions.back()));
      }
      wrong += expect(more[1] < more[0] && more[2] == more[1], "what later sessions add");
      for (const size_t r : {0, 1})
        wrong += expect(places[2][r] - places[1][r] == 65536, "parts side by side");
      // One rank releases the first part, the other the second: neither is free on both.
      sessions.erase(sessions.begin() + rank);
      Session other = Session::open(*kernel, process_a_rank()).value();
      other.allocate().value();
      const auto place = symmetric_of(driver, other);
      wrong += expect(place[0] - places[2][0] == 65536, "a part that nobody had");
    }
    return wrong + expect(driver->alive() == before, "something is left");
  });
}

TEST_CASE("a process a rank: each launches its own, all see each other's memory") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  in_processes([&](int rank) {
    const int before = driver->alive();
    std::string wrong;
    {
      auto opened = Session::open(*kernel, process_a_rank());
      if (!opened) return opened.error().message;
      Session s = std::move(*opened);
      wrong += expect(s.is_here(rank) && !s.is_here(1 - rank), "whose rank it is");
      s.allocate().value();
      const int launched = driver->launches();
      char stream = 0;
      void* const streams[] = {&stream};
      for (int n = 0; n < 3; ++n) s.launch({{"pos", n}}, streams).value();
      const int32_t pos = 3;
      s.launch({{"pos", value_at(&pos)}}, streams).value();
      s.wait().value();
      s.run({{"pos", 0}}).value();
      wrong += expect(driver->launches() == launched + 5, "how many launches");
      const fake::Launched last = driver->launch(driver->launches() - 1);
      wrong += expect(last.rank == rank && last.device == rank, "who launched");
      // What one rank writes into the other's memory, the other finds in its own.
      if (!last.symmetric || !last.symmetric[0] || !last.symmetric[1]) return wrong + "no memory";
      last.symmetric[1 - rank][5] = static_cast<char>(7 + rank);
      s.run({{"pos", 0}}).value();
      wrong += expect(last.symmetric[rank][5] == 7 + (1 - rank), "what the other wrote");
      s.bench({{"pos", 0}}, 70).value();
      wrong += expect(s.write(1 - rank, "i", &pos, 4), "runs in another process", "write");
      wrong += expect(s.run({{"pos", rank}}), "rank 1 was launched with other dims or scalars than",
                      "other values");
      wrong += expect(rank == 1 ? s.run() : s.run({{"pos", 0}}), "scalar 'pos' has no value",
                      "a value that one lacks");
      s.run({{"pos", 0}}).value();
    }
    return wrong + expect(driver->alive() == before, "something is left");
  });
}

TEST_CASE("a process a rank: what fails on one fails on all, and then they run again") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  in_processes([&](int rank) {
    Session s = Session::open(*kernel, process_a_rank()).value();
    s.allocate().value();
    std::string wrong;
    const Values values = {{"pos", 0}};
    if (rank == 1) driver->fail_next(1);
    wrong += expect(s.run(values), "rank 1 on GPU 1: could not launch the kernel", "no start");
    s.run(values).value();
    if (rank == 0) driver->stop_next(0);
    wrong += expect(s.run(values), "rank 0: op 'h': index 9 is outside [0, 4)", "stopped");
    s.run(values).value();
    if (rank == 1) driver->fail_next(1);
    const Status begun = s.launch(values);
    if (rank == 1) wrong += expect(begun, "could not launch the kernel", "no start of a launch");
    wrong += expect(s.wait(), "rank 1 on GPU 1: could not launch", "waited");
    // Refused on one rank before it is enqueued.
    const Status refused = s.launch({{"pos", 9 * rank}});
    if (rank == 1) wrong += expect(refused, "scalar 'pos' is 9", "out of range");
    wrong += expect(s.wait(), "rank 1: scalar 'pos' is 9", "waited for what one refused");
    for (int n = 0; n < 3; ++n) s.launch(values).value();
    while (!s.ended().value()) continue;
    s.wait().value();
    // Reported when they are awaited.
    for (int n = 0; n < 3; ++n) s.launch({{"pos", n == 1 ? rank : 0}}).value();
    wrong +=
        expect(s.wait(), "rank 1 was launched with other dims or scalars than", "other values");
    s.launch(values).value();
    s.wait().value();
    const int32_t pos = 1;
    wrong += expect(rank == 1 ? s.run({{"pos", value_at(&pos)}}) : s.run(values),
                    "other dims or scalars in memory", "in memory of one");
    s.run({{"pos", value_at(&pos)}}).value();
    s.launch(values).value();
    s.wait().value();
    s.run(values).value();
    return wrong;
  });
  // Ranks are out of step, which can't be repaired.
  in_processes([&](int rank) {
    Session s = Session::open(*kernel, process_a_rank()).value();
    s.allocate().value();
    return expect(rank == 0 ? s.wait() : s.run({{"pos", 0}}),
                  "rank 1 makes another call than rank 0", "other calls");
  });
  in_processes([&](int rank) {
    SessionOptions options = process_a_rank();
    if (rank == 1) options.peer_memory = "nccl";
    const auto opened = Session::open(*kernel, options);
    return expect(
        !opened && opened.error().message.find("peer memory is auto on rank 0, nccl on rank 1") !=
                       std::string::npos,
        opened ? "opened" : opened.error().message);
  });
  // A launch for which nobody waits.
  in_processes([&](int rank) {
    Session s = Session::open(*kernel, process_a_rank()).value();
    s.allocate().value();
    s.run({{"pos", 0}}).value();
    if (rank == 1) ::_exit(0);
    std::string wrong = expect(s.run({{"pos", 0}}), "rank 1 is gone", "the other has ended");
    return wrong + expect(s.run({{"pos", 0}}), "rank 1 is gone", "and once more");
  });
}

TEST_CASE("a process a rank: on which GPUs") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  in_processes([&](int rank) {
    SessionOptions options = process_a_rank();
    options.ranks_per_gpu = 2;
    Session s = Session::open(*kernel, options).value();
    s.allocate().value();
    s.run({{"pos", 0}}).value();
    std::string wrong = expect(driver->launch(driver->launches() - 1).device == 0, "not on GPU 0");
    // As if a launcher showed each process only one GPU.
    ::setenv("FAKE_DEVICES", "1", 1);
    const auto refused = Session::open(*kernel, process_a_rank());
    return wrong +
           expect(
               !refused && refused.error().message.find("2 ranks are on the GPU of rank "
                                                        "0, with 1 on a GPU") != std::string::npos,
               "two on a GPU: " + (refused ? "" : refused.error().message)) +
           expect(rank < 2, "");
  });
}

TEST_CASE("a process a rank: one that can't open its session, or ends meanwhile") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const auto says = [&](const SessionOptions& options, const std::string& what) {
    const int before = driver->alive();
    const auto opened = Session::open(*kernel, options);
    const std::string said = opened ? "opened" : opened.error().message;
    return expect(said.find(what) != std::string::npos, said) +
           expect(driver->alive() == before, "something is left");
  };
  in_processes([&](int rank) {
    if (rank == 1) ::setenv("FAKE_FREE", "1000", 1);
    return says(process_a_rank(), "bytes of GPU 1 (Fake H200), but 1000 of its");
  });
  for (const char* step : {"compiling the kernel", "loading the kernel"})
    in_processes([&](int rank) {
      SessionOptions options = process_a_rank();
      options.progress = [&](std::string_view what) {
        if (rank == 1 && what.find(step) == 0) ::_exit(0);
      };
      return says(options, "rank 1 is gone");
    });
}

TEST_CASE("ranks meet in memory of NCCL's, if that is asked for") {
  const Fake driver;
  const auto kernel = kernel_of_test();
  if (!kernel) return;
  const fake::NcclControls* nccl = fake_nccl();
  const int before = driver->alive();
  SessionOptions options;
  options.peer_memory = "nccl";
  {
    Session s = Session::open(*kernel, options).value();
    CHECK(nccl->communicators() == 4);  // two, each with a window
    s.allocate().value();
    s.run({{"pos", 0}}).value();
    const fake::Launched one = driver->launch(driver->launches() - 1),
                         other = driver->launch(driver->launches() - 2);
    CHECK((one.rank != other.rank && one.symmetric != other.symmetric));
    CHECK((one.symmetric[0] == other.symmetric[0] && one.symmetric[1] == other.symmetric[1]));
    CHECK((one.symmetric[0] && one.symmetric[1] && one.symmetric[0] != one.symmetric[1]));
  }
  CHECK(nccl->communicators() == 0);
  CHECK(driver->alive() == before);
  const auto refused = [&](const char* name) {
    options.peer_memory = name;
    return Session::open(*kernel, options).error().message;
  };
  CHECK_THAT(refused("nvshmem"), Contains("'nvshmem' is for ranks in processes of their own"));
  CHECK_THAT(refused("shmem"), Contains("no peer memory 'shmem': there are threads, nccl"));
  options.device = Device::Cpu;
  CHECK_THAT(refused("nccl"), Contains("can be chosen on GPUs only"));
  ::setenv("MACO_NVSHMEM", "/nowhere", 1);
  in_processes([&](int) {
    SessionOptions given = process_a_rank();
    given.peer_memory = "nvshmem";
    const auto opened = Session::open(*kernel, given);
    return expect(!opened && opened.error().message ==
                                 "NVSHMEM was not found where MACO_NVSHMEM says: '/nowhere' is no "
                                 "usable libnvshmem_host",
                  opened ? "opened" : opened.error().message);
  });
  ::unsetenv("MACO_NVSHMEM");
}

TEST_CASE("a process a rank: they join NCCL by one id") {
  const Fake driver;
  const auto kernel = kernel_of_test("cuda_handed");
  if (!kernel) return;
  const fake::NcclControls* nccl = fake_nccl();
  in_processes([&](int rank) {
    std::vector<fake::NcclCall> calls;
    nccl->take(calls);
    Session s = Session::open(*kernel, process_a_rank()).value();
    s.allocate().value();
    s.run({{"n", 3}}).value();
    const int communicators = nccl->communicators();
    Session other = Session::open(*kernel, process_a_rank()).value();
    if (nccl->communicators() != communicators) return std::string("another communicator");
    nccl->take(calls);
    calls.resize(calls.size() - (11 + 1));  // of the other session, as it joins
    for (const fake::NcclCall& c : calls)
      if (c.rank != rank) return std::string("a call of the other rank");
    return expect(calls.size() == 2 * 11 + 1, std::to_string(calls.size()) + " calls");
  });
}

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
