#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/cpu/compile.h"
#include "runtime/cpu/intrinsics/cpu_context.h"
#include "runtime/cpu/session.h"
#include "runtime/cpu/toolchain.h"
#include "tests/catch.h"
#include "tests/unit/address_limit.h"
#include "tests/unit/cpu_kernel.h"

namespace maco::runtime {
namespace {

using test::Contains;

enum { X, W, Y, Z, P, Q, S };
const LaunchValues kAt = {{"at", 1}};

std::vector<float> x_of(int rank, int launch) {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(100 * rank + 7 * launch) + static_cast<float>(i) * 0.5f;
  return x;
}

std::unique_ptr<CpuSession> open(const SessionOptions& options,
                                 const std::string& kernel = test::cpu_kernel()) {
  Status status;
  auto session = make_cpu_session(kernel, options, status);
  INFO(status.message);
  REQUIRE(session);
  std::vector<float> w(256);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5);
  for (int rank : {0, 1}) REQUIRE(session->write(rank, W, w.data(), w.size() * 4));
  return session;
}

void write_inputs(CpuSession& session, int launch) {
  for (int rank : {0, 1}) REQUIRE(session.write(rank, X, x_of(rank, launch).data(), 256));
}

std::vector<float> tensor(CpuSession& session, int rank, size_t index) {
  std::vector<float> out(64, -1.0f);
  REQUIRE(session.read(rank, index, out.data(), 256));
  return out;
}

void launch_and_check(CpuSession& session, int launch) {
  write_inputs(session, launch);
  const Status status = session.launch(kAt);
  INFO(status.message);
  REQUIRE(status.ok);
  float w_sum = 0;
  for (int i = 0; i < 256; ++i) w_sum += static_cast<float>(i % 5);
  for (int rank : {0, 1}) {
    CAPTURE(rank);
    CAPTURE(launch);
    const std::vector<float> own = x_of(rank, launch), other = x_of(1 - rank, launch);
    std::vector<float> y = own, z(64), p(64), s = own;
    if (rank == 1) y[0] = -y[0];
    s[63] = 0;
    for (size_t i = 0; i < 64; ++i) {
      z[i] = own[i] + other[i];
      p[i] = w_sum * own[i];
    }
    CHECK(tensor(session, rank, Y) == y);
    CHECK(tensor(session, rank, Z) == z);
    CHECK(tensor(session, rank, P) == p);
    CHECK(tensor(session, rank, Q) == other);
    CHECK(tensor(session, rank, S) == s);
  }
}

SessionOptions threads() { return {}; }
SessionOptions jitter(uint64_t seed) {
  SessionOptions o;
  o.jitter = seed;
  return o;
}
SessionOptions replay(uint64_t seed) {
  SessionOptions o;
  o.replay = seed;
  return o;
}

// One rank never hears that the other has put its part.
std::string without_signal_to_rank_1() {
  return test::cpu_kernel("/*drop*/kWhoOthers, 0, /*to*/0", "kWhoRank, 0, 0");
}

}  // namespace

TEST_CASE("a kernel runs on threads and on fibres, launch after launch") {
  for (const SessionOptions& options : {threads(), jitter(1), replay(1)}) {
    auto session = open(options);
    for (int launch = 0; launch < 6; ++launch) launch_and_check(*session, launch);
  }
}

TEST_CASE("any order that fibres or delays choose gives the same result") {
  for (const std::string& kernel : {test::cpu_kernel(), test::cpu_kernel("", "", true)})
    for (uint64_t seed = 0; seed < 40; ++seed) {
      CAPTURE(seed);
      auto session = open(replay(seed), kernel);
      for (int launch = 0; launch < 3; ++launch) launch_and_check(*session, launch);
    }
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    auto session = open(jitter(seed));
    for (int launch = 0; launch < 3; ++launch) launch_and_check(*session, launch);
  }
}

TEST_CASE(
    "where the system gives no threads or stacks a launch says how many it needs, and a later one "
    "runs") {
  if (!test::can_limit()) return;
  for (const SessionOptions& options : {threads(), replay(1)}) {
    auto session = open(options);
    launch_and_check(*session, 0);
    Status status;
    {
      const test::AddressLimit limit(size_t{6} << 20);
      status = session->launch(kAt);
    }
    CHECK_FALSE(status.ok);
    if (options.replay)
      CHECK_THAT(status.message, Contains("no memory for the stack of another fibre beside"));
    else
      CHECK_THAT(status.message,
                 Contains("the kernel needs 8 threads on the CPU, but the system gave only"));
    launch_and_check(*session, 1);
  }
}

TEST_CASE("epochs and counters wrap") {
  for (SessionOptions options : {threads(), replay(3)}) {
    options.first_epoch = 0xfffffffd;
    auto session = open(options);
    for (int launch = 0; launch < 8; ++launch) launch_and_check(*session, launch);
    // 2 x 2^31: the counter with two arrivals a launch wraps here.
    options.first_epoch = 0x7ffffffe;
    session = open(options);
    for (int launch = 0; launch < 4; ++launch) launch_and_check(*session, launch);
  }
}

TEST_CASE("slots are reset before the flags of packets come round") {
  ir::Manifest manifest = test::cpu_kernel_manifest();
  CHECK(launches_between_resets(manifest) == (int64_t{1} << 31) - 1);
  // A launch of these takes an eighth of all flags; slots hold those of one four launches ahead.
  manifest.packet_uses = int64_t{1} << 29;
  CHECK(launches_between_resets(manifest) == 3);
  for (SessionOptions options : {threads(), replay(3)}) {
    options.first_epoch = 0xfffffffd;
    options.timeout_ms = 2000;
    auto session = open(options, test::cpu_kernel("", "", false, manifest.packet_uses));
    for (int launch = 0; launch < 20; ++launch) launch_and_check(*session, launch);
  }
}

TEST_CASE("a signal that never comes ends the run with its names, and the session launches again") {
  for (SessionOptions options : {threads(), replay(5)}) {
    options.timeout_ms = 400;
    options.first_epoch = 0xffffffff;
    auto session = open(options, without_signal_to_rank_1());
    for (int launch = 0; launch < 2; ++launch) {
      write_inputs(*session, launch);
      const Status status = session->launch(kAt);
      REQUIRE(!status.ok);
      CHECK_THAT(status.message, Contains("rank 1, SM 0: task 'take'") &&
                                     Contains("rank 0's event 'put'") &&
                                     Contains(launch == 0 ? "expected 4294967295, seen 4294967294"
                                                          : "expected 0, seen 4294967295"));
    }
  }
}

TEST_CASE("a wait at sys scope waits as one at gpu scope does") {
  // For one arrival more than there will be.
  const std::string from = "{0, 2, kSyncLocal, kWhoSelf, 0, 0}, {1, 2",
                    to = "{0, 3, kSyncLocal, kWhoSelf, 0, 0}, {1, 2";
  for (const bool sys : {false, true}) {
    SessionOptions options = replay(5);
    options.timeout_ms = 400;
    auto session = open(options, test::cpu_kernel(from, to, sys));
    write_inputs(*session, 0);
    const Status status = session->launch(kAt);
    REQUIRE(!status.ok);
    CHECK_THAT(status.message, Contains("event 'in'") && Contains("expected 3, seen 2"));
  }
}

TEST_CASE("all ranks leave when one stops, and the next launch is as the first") {
  for (SessionOptions options : {threads(), replay(7)}) {
    options.timeout_ms = 60000;
    auto session = open(options);
    for (int launch = 0; launch < 3; ++launch) launch_and_check(*session, launch);
    write_inputs(*session, 3);
    const Status status = session->launch({{"at", 5}});
    REQUIRE(!status.ok);
    CHECK_THAT(status.message, Contains("op 'take': index 5 is outside [0, 2)"));
    for (int launch = 4; launch < 8; ++launch) launch_and_check(*session, launch);
  }
}

TEST_CASE("a scalar may lie in memory, and one out of its range stops a launch before it begins") {
  for (const SessionOptions& options : {threads(), replay(3)}) {
    auto session = open(options);
    const int32_t good = 1, bad = 10, worse = -10;
    const auto enqueue = [&](int launch, const int32_t* at) {
      write_inputs(*session, launch);
      return session->enqueue({}, {{"at", {{at, at}}}}, {});
    };
    launch_and_check(*session, 0);
    for (int launch = 1; launch < 4; ++launch) {
      REQUIRE(enqueue(launch, &good));
      REQUIRE(session->wait());
      CHECK(tensor(*session, 0, Q) == x_of(1, launch));
    }
    REQUIRE(enqueue(9, &bad));
    const Status told = enqueue(9, &good);  // the one before, and it isn't run
    CHECK(told.message ==
          "rank 0: scalar 'at' is 10, but must be from -9 to 9\n"
          "rank 1: scalar 'at' is 10, but must be from -9 to 9");
    CHECK(tensor(*session, 0, Q) == x_of(1, 3));  // nothing was written
    const auto* const own = static_cast<const int32_t*>(session->address(1, Q));
    CHECK(enqueue(9, own + 3).message ==
          "'at' of rank 1 lies in output 'q', which the launch writes: copy it to other memory "
          "before");
    REQUIRE(enqueue(9, &worse));
    CHECK_THAT(session->wait().message, Contains("scalar 'at' is -10"));
    launch_and_check(*session, 4);
    REQUIRE(enqueue(5, &good));
    REQUIRE(session->wait());
    CHECK(tensor(*session, 0, Q) == x_of(1, 5));
  }
}

TEST_CASE("a value that the kernel wasn't compiled for stops a launch before it begins") {
  auto session = open({}, test::cpu_kernel("f(0, v[0], -9, 9)", "f(0, v[0] * 2, -9, 9)"));
  write_inputs(*session, 0);
  const int32_t at = -5;
  REQUIRE(session->enqueue({}, {{"at", {{&at, &at}}}}, {}));
  CHECK_THAT(session->wait().message,
             Contains("rank 1: 'at' is -10, but the kernel was compiled for -9 to 9"));
}

TEST_CASE("values that have no room in shared memory are in each state") {
  std::string kernel = test::cpu_kernel("f(0, v[0], -9, 9)", "f(20, v[0], -9, 9)");
  for (const auto& [from, to] :
       {std::pair("at = Value<0>", "at = Value<20>"), std::pair("kValues = 1;", "kValues = 21;")}) {
    const size_t at = kernel.find(from);
    REQUIRE(at != std::string::npos);
    kernel.replace(at, std::strlen(from), to);
  }
  auto session = open({}, kernel);
  for (int32_t at : {1, 0}) {
    write_inputs(*session, at);
    REQUIRE(session->enqueue({}, {{"at", {{&at, &at}}}}, {}));
    const Status status = session->wait();
    INFO(status.message);
    REQUIRE(status.ok);
    CHECK(tensor(*session, 0, Q) == x_of(1, at));
  }
  const int32_t wrong = 5;
  REQUIRE(session->enqueue({}, {{"at", {{&wrong, &wrong}}}}, {}));
  CHECK_THAT(session->wait().message, Contains("op 'take': index 5 is outside [0, 2)"));
}

TEST_CASE("launches number themselves, and none goes on behind one that stopped") {
  Status status;
  // The first CTA has no tasks.
  const auto library = compile_cpu_kernels(
      {test::cpu_kernel("{0, 6, calls[0], tasks[0]}", "{0, 0, calls[0], tasks[0]}")}, {}, status);
  INFO(status.message);
  REQUIRE(library);
  const ir::Manifest m = test::cpu_kernel_manifest();
  struct alignas(128) Unit {
    char bytes[128];
  };
  std::vector<Unit> shared(static_cast<size_t>(m.shared_bytes) / sizeof(Unit) + 1);
  maco_cpu::RoleContext alone;
  alone.memory = shared[0].bytes;
  alone.changing = alone.changed = [](maco_cpu::RoleContext*, const void*) {};
  std::vector<uint64_t> memory(
      static_cast<size_t>(symmetric_size(m.symmetric_bytes, m.peer_events, m.world)) / 8);
  char* symmetric[] = {nullptr, reinterpret_cast<char*>(memory.data())};
  auto& control = *reinterpret_cast<Control*>(
      symmetric[1] + control_offset(m.symmetric_bytes, m.peer_events, m.world));
  Report report{};
  std::vector<LaunchState> states(static_cast<size_t>(m.ctas) * kRoles);
  LaunchState& state = states[0];
  Launch launch{};
  launch.symmetric = symmetric;
  launch.control = &control;
  launch.rank = 1;
  launch.reports = &report;
  launch.state = states.data();
  const int32_t at = 4;
  const auto go = [&](const LaunchVariable& variable, int role = 0) {
    launch.variables = given_to_launches({variable});
    alone.role = role;
    library->enter(&alone);
    library->kernel(0)(launch);
    library->enter(nullptr);
  };

  state.epoch = 0xfffffffe;
  state.left = 3;
  go({&at, 0});
  CHECK((state.epoch == 0xffffffff && state.left == 2 && state.refused == 0));
  go({nullptr, -3});
  CHECK((state.epoch == 0 && state.left == 1));
  control.abort = 1;
  for (int turn = 0; turn < 2; ++turn) {
    go({nullptr, -3});
    CHECK((state.refused == 1 && state.epoch == 0 && state.left == 1 && report.state == 0));
    control.abort = 0;
  }
  state.refused = 0;
  go({nullptr, 9});
  CHECK((state.refused == 0 && state.epoch == 1 && state.left == 0));
  go({nullptr, 9});
  CHECK((state.refused == 1 && state.epoch == 1 && report.state == 2 && report.kind == kSpent));
  report = {};
  state.refused = 0;
  state.left = 5;
  go({nullptr, 10});
  CHECK((state.refused == 1 && state.epoch == 1 && state.left == 5));
  CHECK((report.kind == kBadVariable && report.event == 0 && report.index == 10));
  CHECK(report.epoch == 2);
  // All 64 bits count, and negative values count from the end if `from_end` is set.
  const auto wide = [&](int64_t number, bool from_end) {
    report = {};
    state.refused = 0;
    state.left = 5;
    go({&number, 0, 8, from_end});
    return state.refused == 0;
  };
  CHECK(wide(9, false));
  CHECK(!wide((int64_t{1} << 32) + 4, false));
  CHECK((report.kind == kBadVariable && report.index == (int64_t{1} << 32) + 4));
  CHECK(wide(-1, true));
  CHECK(wide(-1, false));
  CHECK(!wide(-30, true));
  CHECK((report.kind == kBadVariable && report.index == -20));
  // Another role has a state of its own, and leaves the report to the first.
  report = {};
  states[2].left = 1;
  go({nullptr, 10}, 2);
  CHECK((states[2].refused == 1 && report.state == 0));
}

TEST_CASE("packets and pages that never come are bounded too") {
  struct Case {
    const char *from, *to, *task, *what;
  };
  for (const Case& c :
       {Case{"bits_of(gload(x + i)), ctx.sent_flag", "0u, ctx.sent_flag + 5u", "task 'sum'",
             "'s packets of 'sum'"},
        Case{"i < C::W; i += 64) {\n    char*", "i < C::W - 64; i += 64) {\n    char*",
             "task 'dot'", "page of shared memory"}}) {
    for (SessionOptions options : {threads(), replay(5)}) {
      options.timeout_ms = 400;
      auto session = open(options, test::cpu_kernel(c.from, c.to));
      write_inputs(*session, 0);
      const Status status = session->launch(kAt);
      REQUIRE(!status.ok);
      CHECK_THAT(status.message, Contains(c.task) && Contains(c.what));
    }
  }
}

TEST_CASE("a replay does the same each time") {
  SessionOptions options = replay(11);
  options.timeout_ms = 1000;
  std::string first;
  for (int i = 0; i < 3; ++i) {
    auto session = open(options, without_signal_to_rank_1());
    write_inputs(*session, 0);
    const Status status = session->launch(kAt);
    CHECK(!status.ok);
    if (i == 0) first = status.message;
    CHECK(status.message == first);
  }
}

TEST_CASE("accesses are checked against the declared regions") {
  SessionOptions options = replay(2);
  options.check_access = true;
  auto session = open(options);
  CHECK_THAT(session->launch(kAt).message, Contains("needs the regions"));
  REQUIRE(session->set_regions(test::cpu_kernel_program()));
  for (int launch = 0; launch < 4; ++launch) launch_and_check(*session, launch);

  ir::Program narrow = test::cpu_kernel_program();
  for (ir::Task& task : narrow.tasks)
    if (narrow[task.call].op == "out" && task.tile == 1) task.accesses[0].region.c0 = 33;
  REQUIRE(session->set_regions(narrow));
  CHECK_THAT(session->launch(kAt).message,
             Contains("rank 0, SM 0: copy 'out' tile 1 reads element 32 (row 0, column 32) of 't' "
                      "on rank 0, which it does not declare"));

  ir::Program wide = test::cpu_kernel_program();
  for (ir::Task& task : wide.tasks)
    if (wide[task.call].op == "in" && task.tile == 0) task.accesses[1].region.c1 = 40;
  REQUIRE(session->set_regions(wide));
  CHECK_THAT(
      session->launch(kAt).message,
      Contains("copy 'in' tile 0 does not write element 32 ") && Contains("of 't' on rank 1"));

  // What is put on the other rank counts there.
  ir::Program wrong_rank = test::cpu_kernel_program();
  for (ir::Task& task : wrong_rank.tasks)
    if (wrong_rank[task.call].op == "push") task.accesses[1].region.where = ir::RankRef::self();
  REQUIRE(session->set_regions(wrong_rank));
  CHECK_THAT(session->launch(kAt).message,
             Contains("rank 0, SM 0: copy 'push' tile 0 writes element 0 (row 0, column 0) of "
                      "'packets' on rank 1") ||
                 Contains("rank 1, SM 0: copy 'push' tile 0 writes element 64 (row 1, column 0) of "
                          "'packets' on rank 0"));
}

TEST_CASE("several kernels are compiled at once") {
  Status status;
  const std::vector<std::string> sources = {test::cpu_kernel(), without_signal_to_rank_1()};
  auto library = compile_cpu_kernels(sources, {}, status);
  INFO(status.message);
  REQUIRE(library);
  REQUIRE(library->size() == 2);
  SessionOptions options = replay(1);
  auto good = make_cpu_session(library, 0, sources[0], options, status);
  auto bad = make_cpu_session(library, 1, sources[1], options, status);
  REQUIRE((good && bad));
  CHECK(good->launch(kAt).ok);
  CHECK(!bad->launch(kAt).ok);
}

TEST_CASE("what is wrong with a kernel or its compiler is said") {
  Status status;
  CHECK(!make_cpu_session("int x;", {}, status));
  CHECK_THAT(status.message, Contains("//@maco"));
  CHECK(!make_cpu_session(test::cpu_kernel("float total = 0;", "undeclared = 0;"), {}, status));
  CHECK_THAT(status.message, Contains("could not compile the kernel") && Contains("undeclared"));
  const char* old = std::getenv("MACO_CXX");
  const std::string kept = old ? old : "";
  setenv("MACO_CXX", "no-such-compiler -O1", 1);
  CHECK(!make_cpu_session(test::cpu_kernel(), {}, status));
  CHECK_THAT(status.message, Contains("'no-such-compiler'") && Contains("$MACO_CXX"));
  if (old) {
    setenv("MACO_CXX", kept.c_str(), 1);
  } else {
    unsetenv("MACO_CXX");
  }
}

TEST_CASE("options that stand with the compiler win over others") {
  std::vector<std::string> command = {"/usr/bin/ccache", "g++", "-O0", "-g"};
  add_flags(command, {"-O2", "-w"});
  CHECK(command == std::vector<std::string>{"/usr/bin/ccache", "g++", "-O2", "-w", "-O0", "-g"});
  command = {"/usr/bin/g++"};
  add_flags(command, {"-O2"});
  CHECK(command == std::vector<std::string>{"/usr/bin/g++", "-O2"});
}

TEST_CASE("a compiled kernel is kept for the CPU too, and a damaged one compiled again") {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "maco-cpu-cache-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  const char* old = std::getenv("MACO_CACHE_DIR");
  const std::string kept = old ? old : "";
  setenv("MACO_CACHE_DIR", folder.c_str(), 1);
  CHECK(open(replay(1))->launch(kAt).ok);
  fs::path entry;
  for (const auto& file : fs::directory_iterator(folder)) entry = file.path();
  REQUIRE(!entry.empty());
  const auto size = fs::file_size(entry);
  const auto time = fs::last_write_time(entry);
  CHECK(open(replay(1))->launch(kAt).ok);
  CHECK(fs::last_write_time(entry) == time);
  // Another manifest is no other code.
  const auto entries = [&] {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  };
  Status status;
  CHECK(compile_cpu_kernels({"//@maco {}\n" + test::cpu_kernel()}, {}, status));
  CHECK(entries() == 1);
  CHECK(compile_cpu_kernels({"int more;\n" + test::cpu_kernel()}, {}, status));
  CHECK(entries() == 2);
  fs::resize_file(entry, size / 2);
  CHECK(open(replay(1))->launch(kAt).ok);
  CHECK(fs::file_size(entry) == size);
  fs::remove_all(folder);
  if (old) {
    setenv("MACO_CACHE_DIR", kept.c_str(), 1);
  } else {
    unsetenv("MACO_CACHE_DIR");
  }
}

TEST_CASE("tensors are read and written within their bounds") {
  auto session = open(replay(1));
  char byte = 0;
  CHECK_THAT(session->write(2, X, &byte, 1).message, Contains("no rank 2"));
  CHECK_THAT(session->read(0, 7, &byte, 1).message, Contains("no tensor 7"));
  CHECK_THAT(session->write(0, X, &byte, 257).message, Contains("'x' has 256 bytes, not 257"));
}

}  // namespace maco::runtime
