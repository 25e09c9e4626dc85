// Tests a process for each rank, by the library.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "maco/maco.h"

using namespace maco;  // NOLINT: as applications do

namespace {

const char* const kText = R"(graph g(world = 3) {
  input x : f32[6, 8]
  output y = allreduce(x)
})";
const char* const kRows = R"(graph rows(world = 3) {
  input table : f32[4, 8]
  input ids : i32[6]
  x = embedding(table, ids)
  output y = allreduce(x)
})";

Kernel kernel(const char* text = kText) {
  CompileOptions options;
  options.target = "cpu";
  return compile(Graph::parse(text).value(), options).value();
}
SessionOptions options_of(int rank) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", "3", 1);
  SessionOptions options;
  options.device = Device::Cpu;
  options.process_a_rank = true;
  options.timeout = std::chrono::seconds(20);
  return options;
}

// One rank's index is wrong: all are told, and can run again.
int run_wrong_once(int rank) {
  auto s = Session::open(kernel(kRows), options_of(rank));
  if (!s || !s->allocate()) return 1;
  const std::vector<float> table(32, 1.0f);
  std::vector<float> y(48);
  for (const int bad : {9, 3, 3}) {
    std::vector<int32_t> ids(6, 2);
    if (rank == 1) ids[5] = bad;
    if (!s->write(rank, "table", table.data(), 128) || !s->write(rank, "ids", ids.data(), 24))
      return 2;
    const Status status = s->run();
    if (bad == 9) {
      const bool told =
          !status && status.error().message.find("rank 1: op 'x': index 9") != std::string::npos;
      if (!told) return 3;
      continue;
    }
    if (!status || !s->read(rank, "y", y.data(), 192)) return 4;
    for (float value : y)
      if (value != 3.0f) return 5;
  }
  return 0;
}

// All processes get the profile of all ranks.
int run_profiled(int rank) {
  SessionOptions options = options_of(rank);
  options.profile = true;
  auto s = Session::open(kernel(), options);
  if (!s || !s->allocate()) return 1;
  if (s->profile()) return 2;  // nothing has run
  if (!s->run()) return 3;
  const auto profile = s->profile();
  if (!profile || profile->table.find("3 ranks") == std::string::npos) return 4;
  return profile->trace.find("rank 2") != std::string::npos ? 0 : 5;
}

// What a rank does. Returns 0 if all is right, else the place where it isn't.
int run_rank(int rank, bool leaves) {
  const SessionOptions options = options_of(rank);
  // Two sessions at once, opened in one order by all.
  auto first = Session::open(kernel(), options), second = Session::open(kernel(), options);
  if (!first || !second) return 1;
  for (Session* s : {&*first, &*second}) {
    if (!s->is_here(rank) || s->is_here((rank + 1) % 3) || s->is_here(3)) return 2;
    if (!s->allocate()) return 3;
    const std::vector<float> x(48, static_cast<float>(rank + 1));
    std::vector<float> y(48);
    if (!s->write(rank, "x", x.data(), 192)) return 4;
    if (s->write((rank + 1) % 3, "x", x.data(), 192)) return 5;
    if (!s->run() || !s->read(rank, "y", y.data(), 192)) return 6;
    for (float value : y)
      if (value != 6.0f) return 7;
  }
  if (!leaves) return 0;
  if (rank == 2) _exit(0);
  const Status status = first->run();
  return !status && status.error().message.find("rank 2 is gone") != std::string::npos ? 0 : 8;
}

void run_all(const std::function<int(int)>& run) {
  setenv("MACO_GROUP", std::to_string(getpid()).c_str(), 1);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(run(rank));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

}  // namespace

TEST_CASE("sessions of three processes") {
  run_all([](int rank) { return run_rank(rank, false); });
}
TEST_CASE("a process that leaves fails the launches of the others") {
  run_all([](int rank) { return run_rank(rank, true); });
}
TEST_CASE("processes launch again after a launch that failed on one") { run_all(run_wrong_once); }

// One rank opens its session with other settings: all are told the difference.
int run_told_differently(int rank) {
  SessionOptions options = options_of(rank);
  options.profile = rank == 1;
  const auto profiled = Session::open(kernel(), options);
  if (profiled || profiled.error().message.find("a profile is not given on ranks 0 and 2, asked "
                                                "for on rank 1") == std::string::npos)
    return 1;
  const auto other = Session::open(kernel(rank == 2 ? kRows : kText), options_of(rank));
  if (other || other.error().message.find("the graph is 'g' (") == std::string::npos ||
      other.error().message.find("on ranks 0 and 1, 'rows' (") == std::string::npos)
    return 2;
  return Session::open(kernel(), options_of(rank)) ? 0 : 3;
}

TEST_CASE("processes that open their sessions differently hear how") {
  run_all(run_told_differently);
}
TEST_CASE("processes get one profile") { run_all(run_profiled); }

TEST_CASE("a session of a process a rank needs to know which") {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  SessionOptions options;
  options.process_a_rank = true;
  CHECK(Session::open(kernel(), options).error().code == ErrorCode::InvalidArgument);
  options.device = Device::Cpu;
  const auto session = Session::open(kernel(), options);
  REQUIRE_FALSE(session);
  CHECK(session.error().message.find("names no rank") != std::string::npos);
}
