// Session::load, as applications see it, on the CPU.
#include <maco/maco.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/api/checkpoint.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

const char* const kText = R"(graph g(world = 2) {
  input x : bf16[256, 128]
  param w : bf16[256, 128]
  state s : bf16[256, 128]
  s = add(s, w)
  output y = add(x, w)
})";

Kernel kernel(const std::string& text = kText) {
  CompileOptions options;
  options.target = "cpu";
  return compile(Graph::parse(text).value(), options).value();
}
SessionOptions on_cpu() {
  SessionOptions options;
  options.device = Device::Cpu;
  return options;
}
constexpr size_t kBytes = size_t{256} * 128 * 2;

bool has(const Session& s, int rank, const Checkpoint& c, size_t row) {
  std::vector<char> w(kBytes);
  s.read(rank, "w", w.data(), kBytes).value();
  return std::memcmp(w.data(), c.row(row), kBytes) == 0;
}

TEST_CASE("params are loaded where they live, or get memory, and others are left alone") {
  const Checkpoint c;
  Session s = Session::open(kernel(), on_cpu()).value();
  std::vector<std::pair<int64_t, int64_t>> told;
  alignas(16) static std::array<char, kBytes> mine;
  s.bind(1, "w", mine.data(), kBytes).value();
  s.load(c.halves("w"), c.folder(), [&](int64_t done, int64_t total) {
     told.emplace_back(done, total);
   }).value();
  CHECK(s.address(1, "w").value() == mine.data());
  CHECK((has(s, 0, c, 0) && has(s, 1, c, 256)));
  REQUIRE_FALSE(told.empty());
  CHECK(told.back() == std::pair<int64_t, int64_t>(131072, 131072));
  for (const char* other : {"x", "s", "y"}) CHECK(s.address(0, other).value() == nullptr);
  s.allocate().value();
  s.run().value();

  // Another session has the same, and it can be loaded again.
  Session other = Session::open(kernel(), on_cpu()).value();
  other.share(s).value();
  CHECK(has(other, 1, c, 256));
  other
      .load(c.weights("w", R"("shape": [256, 128], "parts": [{"from": "w", "rows": [1, 257]}])"),
            c.folder())
      .value();
  CHECK((has(s, 0, c, 1) && has(s, 1, c, 1)));
}

TEST_CASE("what is wrong is an argument, by name, and nothing has changed") {
  const Checkpoint c;
  Session s = Session::open(kernel(), on_cpu()).value();
  const auto wrong = [&](const std::string& weights, const std::string& folder) {
    const Status status = s.load(weights, folder);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == ErrorCode::InvalidArgument);
    CHECK(s.address(0, "w").value() == nullptr);
    return status.error().message;
  };
  CHECK_THAT(wrong("{}", c.folder()), Contains("weights.json: has no 'maco_weights'"));
  CHECK_THAT(wrong(c.halves("v"), c.folder()), Contains("the weights have no param 'w'"));
  CHECK_THAT(wrong(c.weights("w", R"("shape": [512, 128], "parts": [{"from": "w"}])"), c.folder()),
             Contains("param 'w' is bf16[512,128] in the weights, but the kernel wants"));
  CHECK_THAT(wrong(c.halves("w"), "/nonexisting"),
             Contains("/nonexisting/model.safetensors: cannot be opened"));
  std::filesystem::resize_file(c.file(), 100000);
  CHECK_THAT(wrong(c.halves("w"), c.folder()), Contains(c.file() + ": is cut off"));
  // Params of other kernels may be there.
  Session none =
      Session::open(kernel("graph n(world = 2) {\n  input x : f32[4]\n  output y = relu(x)\n}"),
                    on_cpu())
          .value();
  none.load(c.halves("w"), c.folder()).value();
  Session one =
      Session::open(kernel("graph o {\n  param w : f32[4]\n  output y = relu(w)\n}"), on_cpu())
          .value();
  CHECK_THAT(one.load(c.halves("w"), c.folder()).error().message,
             Contains("cut for 2 ranks, but the kernel has 1"));
}

TEST_CASE("a kernel of several variants is loaded once for all") {
  const Checkpoint c;
  const Kernel k = kernel(R"(graph g(world = 2) {
  dim n <= 256
  input x : bf16[n, 128]
  param w : bf16[256, 128]
  h = matmul(x, w, transpose_b = true)
  output y = allreduce(h)
  set sm_roles = {when: [{if: "n <= 4", roles: {compute: 5, comm: 2}}, {else: {compute: 6, comm: 1}}]}
})");
  Session s = Session::open(k, on_cpu()).value();
  s.load(c.halves("w"), c.folder()).value();
  s.allocate().value();
  CHECK((has(s, 0, c, 0) && has(s, 1, c, 256)));
  s.run({{"n", 3}}).value();
  s.run({{"n", 200}}).value();
}

TEST_CASE("another thread stops a load, and the session goes on") {
  const Checkpoint c;
  Session s = Session::open(kernel(), on_cpu()).value();
  s.stop();  // nobody waits
  s.load(c.halves("w"), c.folder()).value();
  std::atomic<bool> stopped{false};
  std::thread loader([&] {
    for (Status status; !stopped;) {
      status = s.load(c.halves("w"), c.folder());
      if (status) continue;
      CHECK(status.error().message == "loading was stopped by its caller");
      CHECK(status.error().code == ErrorCode::RunFailed);
      stopped = true;
    }
  });
  while (!stopped) s.stop();
  loader.join();
  s.load(c.halves("w"), c.folder()).value();
  CHECK((has(s, 0, c, 0) && has(s, 1, c, 256)));
}

TEST_CASE("a process a rank loads its part") {
  const Checkpoint c;
  setenv("MACO_GROUP", std::to_string(getpid()).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      SessionOptions options = on_cpu();
      options.process_a_rank = true;
      options.timeout = std::chrono::seconds(20);
      auto s = Session::open(kernel(), options);
      if (!s || !s->load(c.halves("w"), c.folder())) _exit(1);
      if (!has(*s, rank, c, rank == 0 ? 0 : 256)) _exit(2);
      _exit(s->allocate() && s->run() ? 0 : 3);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  unsetenv("MACO_GROUP");
  unsetenv("WORLD_SIZE");
}

}  // namespace
}  // namespace maco::test
