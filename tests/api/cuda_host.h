// What the tests of the host's work around kernels on GPUs share: the driver that has no GPU, the
// kernel, and processes of a rank each.
#pragma once

#include <dlfcn.h>
#include <maco/maco.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include "tests/api/fake_driver/fake.h"
#include "tests/catch.h"
#include "tests/paths.h"

namespace maco::test {

using namespace maco::types;  // NOLINT: as applications do

/// The driver, opened as an application's library of the same name.
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

/// Nothing if there is no NVRTC, which has compiled the kernel before, as it doesn't take this
/// driver.
inline std::optional<Kernel> kernel_of_test(const std::string& name = "cuda_host") {
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

/// Sets an environment variable, on which the driver's answers depend, while it lives.
struct Set {
  const char* name;
  Set(const char* n, const char* value) : name(n) { ::setenv(name, value, 1); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  ~Set() { ::unsetenv(name); }
};

inline const fake::NcclControls* fake_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  REQUIRE(library);
  const auto* controls =
      static_cast<const fake::NcclControls*>(dlsym(library, "fake_nccl_controls"));
  REQUIRE(controls);
  return controls;
}

/// Runs `body` in a process for each of two ranks; it returns what is wrong, or "".
inline void in_processes(const std::function<std::string(int)>& body) {
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

inline std::string expect(bool good, const std::string& what) { return good ? "" : what + "\n"; }
inline std::string expect(const Status& status, const std::string& says, const std::string& what) {
  if (status) return what + ": went well\n";
  return expect(status.error().message.find(says) != std::string::npos,
                what + ": " + status.error().message);
}

inline SessionOptions process_a_rank() {
  SessionOptions options;
  options.process_a_rank = true;
  options.timeout = std::chrono::seconds(5);
  return options;
}

}  // namespace maco::test
