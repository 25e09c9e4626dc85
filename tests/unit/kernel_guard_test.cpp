#include "runtime/cpu/kernel_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "runtime/cpu/session.h"
#include "tests/catch.h"
#include "tests/unit/cpu_kernel.h"

namespace maco::runtime {
namespace {

using namespace std::chrono_literals;
using test::Contains;

constexpr int kStatus = 4;

// What tile 1 of copy does before anything else.
struct Damage {
  const char* what;
  const char* code;
  const char* said;  // behind the task's name; "": nothing, the launch succeeds
};
const std::vector<Damage> kDamages = {
    {"nothing", "", ""},
    {"a store behind the shared memory", "for (volatile char* at = ctx.pages();; ++at) *at = 1;",
     " crashed (segmentation fault beside the CTA's shared memory); the run ends here"},
    {"a stack that overflows",
     "struct R { static int f(volatile int* p) { volatile int a[999]; a[0] = *p; return f(a) + "
     "a[0]; } }; volatile int a = R::f((volatile int*)ctx.pages());",
     " crashed (segmentation fault); the run ends here"},
    {"a trap", "__builtin_trap();", " crashed (trap, "},
    {"an abort", "__builtin_abort();", " crashed (aborted); the run ends here"},
    {"an access of no buffer", "gstore(y + (1 << 28), 1.0f);",
     " touches memory of no buffer; the run ends here"},
    {"a loop without an end", "for (volatile int on = 1; on;) {}", ""},
    {"a foreign access, then a trap", "gload(x); __builtin_trap();",
     " reads element 0 (row 0, column 0) of 'x' on rank "},
};
enum { kNothing, kBehind, kTrap = 3, kLoop = 6, kForeign };

std::string source(const Damage& damage) {
  const std::string begins = "float* y = args.ptr<float>(1);\n";
  return test::cpu_kernel(begins, begins + "  if (tile == 1) { " + damage.code + " }\n");
}

std::shared_ptr<CpuLibrary> library() {
  static const std::shared_ptr<CpuLibrary> all = [] {
    std::vector<std::string> sources;
    for (const Damage& damage : kDamages) sources.push_back(source(damage));
    Status status;
    auto compiled = compile_cpu_kernels(sources, {.check_access = true}, status);
    if (!compiled) throw std::runtime_error(status.message);
    return compiled;
  }();
  return all;
}

struct Ended {
  int status = -1, signal = 0;
  std::string said;
};
// In a process of its own, which `body` may end.
Ended in_child(const std::function<int()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    // Not Catch2's handlers: they would report a failure of the test.
    for (int signal : {SIGSEGV, SIGABRT, SIGILL, SIGTRAP}) std::signal(signal, SIG_DFL);
    _exit(body());
  }
  close(ends[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.said.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  if (WIFEXITED(state)) ended.status = WEXITSTATUS(state);
  if (WIFSIGNALED(state)) ended.signal = WTERMSIG(state);
  return ended;
}

// Twice, if the first launch ends well.
int launch(size_t damage, bool fibres, KernelGuard* guard) {
  SessionOptions options;
  options.check_access = true;
  if (fibres) options.replay = 5;
  Status status;
  auto session = make_cpu_session(library(), damage, source(kDamages[damage]), options, status);
  if (!session || !session->set_regions(test::cpu_kernel_program(), guard)) return 90;
  for (int launch = 0; launch < 2; ++launch)
    if (!session->launch({{"at", 1}})) return 91;
  return 0;
}

Ended guarded(size_t damage, bool fibres, std::chrono::milliseconds patience = 600s) {
  return in_child([&] {
    Status status;
    const auto guard = KernelGuard::make(kStatus, patience, status);
    return guard ? launch(damage, fibres, guard.get()) : 92;
  });
}

TEST_CASE("a kernel guard says which task crashed, on threads and on fibres") {
  library();
  for (const bool fibres : {false, true}) {
    for (size_t i = 0; i < kDamages.size(); ++i) {
      if (i == kLoop) continue;
      const Damage& damage = kDamages[i];
      INFO(damage.what << (fibres ? ", on fibres" : ", on threads"));
      const Ended ended = guarded(i, fibres);
      CAPTURE(ended.said);
      CHECK(ended.signal == 0);
      if (i == kNothing) {
        CHECK(ended.status == 0);
        CHECK(ended.said.empty());
        continue;
      }
      CHECK(ended.status == kStatus);
      CHECK_THAT(ended.said, Contains(std::string(", SM 1: copy 'in' tile 1") + damage.said));
      if (i == kForeign) CHECK_THAT(ended.said, Contains("tile 1 crashed (trap, "));
    }
  }
}

TEST_CASE("a kernel guard says which tasks don't end") {
  for (const bool fibres : {false, true}) {
    const Ended ended = guarded(kLoop, fibres, 300ms);
    CAPTURE(ended.said);
    CHECK(ended.status == kStatus);
    CHECK_THAT(ended.said, Contains("no task has begun or ended for 300 ms"));
    CHECK_THAT(ended.said, Contains(", SM 1: copy 'in' tile 1\n"));
    // The fibres that stand while one loops aren't to blame.
    if (fibres) CHECK(std::count(ended.said.begin(), ended.said.end(), '\n') == 2);
  }
}

TEST_CASE("signals are those of before without a guard, and before its first launch") {
  library();
  CHECK(in_child([] { return launch(kBehind, false, nullptr); }).signal == SIGSEGV);
  CHECK(in_child([] {
          Status status;
          KernelGuard::make(kStatus, 600s, status).reset();
          const auto again = KernelGuard::make(kStatus, 600s, status);
          return std::raise(SIGSEGV);
        }).signal == SIGSEGV);
  const Ended gone = in_child([] {
    Status status;
    auto guard = KernelGuard::make(kStatus, 600s, status);
    const int launched = launch(kNothing, false, guard.get());
    guard.reset();
    std::raise(SIGSEGV);
    return launched;
  });
  CHECK(gone.signal == SIGSEGV);
  const Ended later = in_child([] {
    Status status;
    const auto guard = KernelGuard::make(kStatus, 600s, status);
    const int launched = launch(kNothing, false, guard.get());
    std::abort();
    return launched;
  });
  CHECK(later.status == kStatus);
  CHECK_THAT(later.said, Contains("a crash outside of a task (aborted)"));
}

}  // namespace
}  // namespace maco::runtime
