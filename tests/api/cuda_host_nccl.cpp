// What kernels hand over to NCCL, and memory of NCCL's.
#include <cstring>
#include <string>
#include <vector>

#include "tests/api/cuda_host.h"

namespace maco::test {
namespace {

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

}  // namespace
}  // namespace maco::test
