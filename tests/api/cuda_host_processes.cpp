// Sessions of one process and of a process a rank: symmetric memory, failures, GPUs.
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/api/cuda_host.h"

namespace maco::test {
namespace {

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

}  // namespace
}  // namespace maco::test
