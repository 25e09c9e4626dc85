#include "runtime/host/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/cuda_rank.h"
#include "runtime/host/cuda_session.h"
#include "runtime/host/driver.h"
#include "runtime/host/rank_threads.h"
#include "runtime/host/symmetric.h"
#include "tests/catch.h"
#include "tests/unit/address_limit.h"

namespace maco::runtime {
namespace {

using ir::Expr;
using test::Contains;

ir::Manifest example() {
  ir::Manifest m;
  m.name = "example";
  m.world = 2;
  m.target = "sm_90a";
  m.ctas = 132;
  m.consumers = 256;
  m.loaders = 32;
  m.dims = {{"tokens", 1, 64}};
  m.scalars = {{"pos", 0, 4095}};
  m.values = {{Expr::var("tokens"), 1, 64},
              {Expr::var("pos") + Expr::var("rank") * Expr::var("world"), 0, 1 << 20}};
  m.calls = {{"down", "matmul"}, {"emb", "embedding"}, {"y", "allreduce"}};
  m.local_names = {{0, "x tile 0"}, {10, "h tile 3"}, {20, "down tiles 0..7"}};
  m.peer_names = {{0, "y.arrived.0"}};
  return m;
}

std::string failure(const ir::Manifest& m, const LaunchValues& values, int rank = 0) {
  std::vector<int32_t> out;
  const Status status = evaluate_values(m, values, rank, out);
  CHECK(!status.ok);
  return status.message;
}

Report report(u32 kind) {
  Report r{};
  r.state = 2;
  r.kind = kind;
  r.cta = 3;
  r.tile = 5;
  r.event = 12;
  r.source = 1;
  r.expected = 4294967290u;
  r.seen = 4294967289u;
  return r;
}

}  // namespace

TEST_CASE("launch values follow from dims, scalars and the rank") {
  std::vector<int32_t> out;
  REQUIRE(evaluate_values(example(), {{"tokens", 5}, {"pos", 100}}, 1, out));
  CHECK(out == std::vector<int32_t>{5, 102});
  REQUIRE(evaluate_values(example(), {{"pos", 4095}}, 0, out));  // a dim has its maximum
  CHECK(out == std::vector<int32_t>{64, 4095});
}

TEST_CASE("dims and scalars out of range are refused with the range") {
  CHECK(failure(example(), {{"pos", 4096}}) == "scalar 'pos' is 4096, but must be from 0 to 4095");
  CHECK(failure(example(), {{"pos", -1}}) == "scalar 'pos' is -1, but must be from 0 to 4095");
  CHECK(failure(example(), {{"pos", 0}, {"tokens", 65}}) ==
        "dim 'tokens' is 65, but must be from 1 to 64");
  CHECK(failure(example(), {{"pos", 0}, {"tokens", 0}}) ==
        "dim 'tokens' is 0, but must be from 1 to 64");
  CHECK(failure(example(), {}) == "scalar 'pos' has no value; it takes one from 0 to 4095");
  CHECK(failure(example(), {{"pos", 0}, {"token", 3}}) ==
        "'token' is no dim or scalar of 'example': it has 'tokens', 'pos'");
  CHECK(failure(example(), {{"pos", 0}}, 2) == "rank 2 is outside [0, 2)");
}

TEST_CASE("values that can't be computed or don't fit name the rank") {
  ir::Manifest m = example();
  m.values = {{Expr::binary(Expr::Kind::Div, Expr(7), Expr::var("rank")), 0, 7}};
  CHECK_THAT(failure(m, {{"pos", 0}}, 0), Contains("rank 0") && Contains("division by zero"));
  m.values = {{(Expr::var("pos") + Expr(1)) * Expr(int64_t{1} << 31), 0, int64_t{1} << 50}};
  CHECK_THAT(failure(m, {{"pos", 0}}, 1),
             Contains("rank 1") && Contains("2147483648, which does not fit 32 bits"));
  m.values = {{Expr::var("pos") + Expr(100000), 0, 40}};
  CHECK_THAT(failure(m, {{"pos", 3}}, 1),
             Contains("rank 1: 'pos + 100000' is 100003, but the kernel was compiled for 0 to 40"));
  m.values.assign(size_t{kMaxValues} + 1, {Expr(1), 1, 1});
  CHECK_THAT(failure(m, {{"pos", 0}}), Contains("257 launch values, more than the 256"));
}

TEST_CASE("dims and scalars are listed in their order, some by their addresses") {
  const ir::Manifest m = example();
  const int32_t pos[2] = {};
  std::vector<LaunchVariable> list;
  const auto listed = [&](const LaunchValues& values, const LaunchAddresses& addresses, int rank) {
    const Status status = list_variables(m, values, addresses, rank, {0, 2}, list);
    return status.message;
  };
  CHECK(listed({{"tokens", 7}}, {{"pos", {{&pos[0], &pos[1]}}}}, 1) == "");
  REQUIRE(list.size() == 2);
  CHECK((list[0].at == nullptr && list[0].value == 7 && list[1].at == &pos[1]));
  CHECK(listed({{"pos", 9}}, {{"tokens", {{&pos[0], &pos[1]}}}}, 0) == "");
  REQUIRE(list.size() == 2);
  CHECK((list[0].at == &pos[0] && list[1].at == nullptr && list[1].value == 9));

  CHECK(listed({{"pos", 9}}, {{"token", {{&pos[0], &pos[1]}}}}, 0) ==
        "'token' is no dim or scalar of 'example': it has 'tokens', 'pos'");
  CHECK(listed({}, {{"tokens", {{&pos[0], &pos[1]}}}}, 0) ==
        "scalar 'pos' has no value; it takes one from 0 to 4095");
  CHECK(listed({{"tokens", 65}}, {{"pos", {{&pos[0], &pos[1]}}}}, 0) ==
        "dim 'tokens' is 65, but must be from 1 to 64");
  CHECK(listed({}, {{"pos", {{&pos[0]}}}}, 0) == "'pos' has 1 addresses for 2 ranks");
  CHECK_THAT(listed({}, {{"pos", {{&pos[0], nullptr}}}}, 1), Contains("'pos' of rank 1 is at"));
  const auto* odd = reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(pos) + 2);
  CHECK_THAT(listed({}, {{"pos", {{odd, &pos[1]}}}}, 0),
             Contains("which is no address of a 32-bit integer"));
}

TEST_CASE("what a launch with dims and scalars in memory takes has an end") {
  ir::Manifest m = example();
  m.dims.assign(size_t{kMaxVariables} - 1, {"n", 1, 2});
  CHECK(check_variables(m).ok);
  m.dims.push_back({"n", 1, 2});
  CHECK(check_variables(m).message ==
        "'example' has 129 dims and scalars, but launches of captured graphs, and those with some "
        "in memory, take at most 128");
  std::vector<LaunchVariable> list;
  const int32_t pos = 0;
  CHECK(list_variables(m, {{"pos", 0}}, {}, 0, {}, list).ok);
  CHECK_THAT(list_variables(m, {}, {{"pos", {{&pos, &pos}}}}, 0, {0, 2}, list).message,
             Contains("at most 128"));
}

TEST_CASE("a report is told in the names of the graph") {
  const ir::Manifest m = example();
  CHECK(
      explain_report(m, 0, report(kWaitLocal), 30000) ==
      "rank 0, SM 3: task 'down' (matmul) tile 5 waited 30 s without progress for event 'h tile 5' "
      "(local event 12): "
      "expected 4294967290, seen 4294967289");
  CHECK(explain_report(m, 0, report(kWaitPeer), 250) ==
        "rank 0, SM 3: task 'down' (matmul) tile 5 waited 250 ms without progress for rank 1's "
        "event 'y.arrived.12' "
        "(peer event 12): expected 4294967290, seen 4294967289");
  CHECK_THAT(explain_report(m, 0, report(kWaitPacket)),
             Contains("waited without progress for rank 1's packets of 'down' (operand 12)"));
  CHECK_THAT(explain_report(m, 1, report(kWaitPacket)),
             Contains("for its rank's packets, operand 12 of 'down'"));
  CHECK_THAT(explain_report(m, 0, report(kWaitPage)), Contains("page of shared memory"));
  CHECK_THAT(explain_report(m, 0, report(kWaitMate)), Contains("the other SM of its pair"));
  Report index = report(kBadIndex);
  index.call = 1;
  index.index = 70000;
  index.limit = 32000;
  CHECK(explain_report(m, 1, index) == "rank 1: op 'emb': index 70000 is outside [0, 32000)");
  Report stopped = report(kWaitPacket);
  stopped.stopped_by = 1 + 1;
  CHECK(explain_report(m, 0, stopped) ==
        "rank 0, SM 3: stopped by rank 1 while task 'down' (matmul) tile 5 waited for rank 1's "
        "packets "
        "of 'down' (operand 12): expected 4294967290, seen 4294967289");
  stopped.stopped_by = 2 + 1;
  CHECK_THAT(explain_report(m, 0, stopped), Contains("stopped by the host while task 'down'"));
}

TEST_CASE("a report of a launch that didn't begin says what was wrong with it") {
  ir::Manifest m = example();
  m.packet_uses = 3;
  const auto told = [&](u32 kind, u32 which, i64 is) {
    Report r = report(kind);
    r.event = which;
    r.index = is;
    return explain_report(m, 1, r);
  };
  CHECK(told(kBadVariable, 0, 65) == "rank 1: dim 'tokens' is 65, but must be from 1 to 64");
  CHECK(told(kBadVariable, 1, -1) == "rank 1: scalar 'pos' is -1, but must be from 0 to 4095");
  CHECK(told(kBadValue, 1, 1 << 21) ==
        "rank 1: 'pos + rank * world' is 2097152, but the kernel was compiled for 0 to 1048576");
  m.values[1].hi = int64_t{1} << 40;
  CHECK(told(kBadValue, 1, int64_t{1} << 31) ==
        "rank 1: 'pos + rank * world' is 2147483648, which does not fit 32 bits");
  CHECK(told(kSpent, 0, 0) ==
        "rank 1: 715827881 launches without a wait, and counters must be reset: launch again");
  // Others that make no sense.
  CHECK_THAT(told(kBadVariable, 2, 0), Contains("unknown reason 7"));
  CHECK_THAT(told(kBadValue, 2, 0), Contains("unknown reason 8"));
}

TEST_CASE("reports that make no sense are told as far as they go") {
  ir::Manifest m = example();
  CHECK(explain_report(m, 0, Report{}) == "");
  Report r = report(kWaitLocal);
  r.state = 1;
  CHECK_THAT(explain_report(m, 0, r), Contains("not complete"));
  r = report(kWaitLocal);
  r.call = 99;
  r.place = 7;
  m.local_names.clear();
  CHECK_THAT(explain_report(m, 0, r),
             Contains("task 7 (call 99)") && Contains("for local event 12:"));
  CHECK_THAT(explain_report(m, 0, report(77)), Contains("unknown reason 77"));
}

TEST_CASE("of a rank's reports the cause is told, and of all ranks' the first cause first") {
  const auto wait = [](u32 kind, u32 epoch, u32 call, u32 tile, u32 stopped_by = 0) {
    Report r = report(kind);
    r.epoch = epoch;
    r.call = call;
    r.tile = tile;
    r.stopped_by = stopped_by;
    return r;
  };
  const auto place = [](const Report& r) { return std::tuple(r.epoch, r.call, r.tile); };
  // The first in the Program's order, whoever's deadline passed first.
  const Report first = wait(kWaitLocal, 9, 1, 4, 1), later = wait(kWaitLocal, 9, 1, 5),
               last = wait(kWaitPeer, 9, 2, 0);
  CHECK(place(cause_of(std::vector{Report{}, last, first, later})) == place(first));
  CHECK(cause_of(std::vector{Report{}, Report{}}).state == 0);
  CHECK(cause_of({}).state == 0);
  // The deadline of the rank's time passed, whichever wait noticed it.
  CHECK(cause_of(std::vector{first, later}).stopped_by == 0);
  CHECK(cause_of(std::vector{first, Report{}}).stopped_by == 1);
  // A report of an earlier launch comes first, also where the launches' numbers wrap.
  const Report before = wait(kWaitLocal, 0xffffffff, 2, 7), after = wait(kWaitLocal, 0, 0, 0);
  CHECK(place(cause_of(std::vector{after, before})) == place(before));
  // An index before all waits, a report that was cut short after them.
  const Report bad = wait(kBadIndex, 9, 2, 9);
  Report unfinished = wait(kWaitLocal, 9, 0, 0);
  unfinished.state = 1;
  CHECK(cause_of(std::vector{first, bad, unfinished}).kind == kBadIndex);
  CHECK(cause_of(std::vector{first, wait(kBadVariable, 9, 0, 0), last}).kind == kBadVariable);
  CHECK(cause_of(std::vector{unfinished, last}).state == 2);

  const std::string text = explain_reports(example(), std::vector{last, Report{}, first, bad});
  const size_t at[] = {text.find("rank 3: op 'y'"), text.find("\nrank 2, SM 3: "),
                       text.find("\nrank 0, SM 3: ")};
  CHECK(at[0] == 0);
  CHECK(at[0] < at[1]);
  CHECK(at[1] < at[2]);
  CHECK(at[2] != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(explain_reports(example(), {}) == "");
}

TEST_CASE("all ranks take a step at once, and all statuses come back") {
  RankThreads threads(3);
  std::atomic<int> met{0};
  for (int round = 0; round < 100; ++round) {
    const auto statuses = threads.run([&](int rank) {
      ++met;
      threads.meet();
      const int seen = met;  // nobody goes on before all have come
      threads.meet();
      return seen == 3 * (round + 1) && rank != round % 3
                 ? Status{}
                 : Status::failure("rank " + std::to_string(rank));
    });
    CHECK(all_of(statuses).message == "rank " + std::to_string(round % 3));
  }
  std::atomic<bool> ticked{false};
  threads.run(
      [&](int) {
        while (!ticked) std::this_thread::yield();
        return Status{};
      },
      [&] { ticked = true; }, std::chrono::milliseconds(1));
  CHECK(all_of({Status::failure("a"), {}, Status::failure("b"), Status::failure("a")}).message ==
        "a\nb");
  CHECK(all_of({{}, {}}).ok);
}

TEST_CASE("where the system gives no threads the ranks' say so") {
  if (!test::can_limit()) return;
  std::string message;
  {
    const test::AddressLimit limit(size_t{6} << 20);
    const RankThreads none(64);
    message = none.status().message;
  }
  CHECK_THAT(message, Contains("64 ranks need a host thread each, but the system gave only"));
  CHECK(RankThreads(2).status().ok);
}

TEST_CASE("symmetric memory has slots, words of peer events and control") {
  ir::Manifest m = example();
  m.symmetric_bytes = 1024;
  m.peer_events = 33;
  const SymmetricLayout layout = symmetric_layout(m);
  CHECK(layout.events == 1024);
  CHECK(layout.control == 1536);  // 1024 + 33 * 2 * 4, rounded up
  CHECK(layout.bytes == 1536 + 256);
}

TEST_CASE("ranks whose memory a GPU doesn't have are refused with both numbers") {
  ir::Manifest m = example();
  m.tensors = {{"x", "input", ir::DType::F32, {Expr(int64_t{1000})}, 1000},
               {"y", "output", ir::DType::BF16, {Expr(int64_t{10})}, 10}};
  m.arena_bytes = 8192;
  m.local_events = 100;
  const size_t own = 4000 + 256 + 8192 + 400 + symmetric_layout(m).bytes +
                     static_cast<size_t>(m.ctas) * sizeof(LaunchState);
  const size_t needed = device_bytes(m);
  CHECK(needed >= own);
  CHECK(needed <= own + 1024);  // tables of addresses
  cuda::DeviceInfo gpu;
  gpu.index = 3;
  gpu.name = "small";
  CHECK(check_memory(m, 2, gpu, 2 * needed, 4 * needed).ok);
  CHECK(check_memory(m, 2, gpu, 2 * needed - 1, 4 * needed).message ==
        fmt::format("2 ranks need {} bytes of GPU 3 (small), but {} of its {} are free", 2 * needed,
                    2 * needed - 1, 4 * needed));
}

TEST_CASE("the median of an even number of times is the mean of the two in the middle") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
}

TEST_CASE("a session on a GPU that can't be had is refused with the reason") {
  Status status;
  CHECK(!make_cuda_session("int main() {}\n", {}, status));
  CHECK_THAT(status.message, Contains("no '//@maco' lines"));
  ir::Manifest m = example();
  m.target = "cpu";
  CHECK(!make_cuda_session(print_manifest(m), {}, status));
  CHECK_THAT(status.message, Contains("'cpu', which is no NVIDIA GPU"));
  SessionOptions options;
  options.ranks_per_gpu = 0;
  CHECK(!make_cuda_session(print_manifest(example()), options, status));
  CHECK_THAT(status.message, Contains("at least one rank"));

  CHECK(!cuda::Driver::load(status, "/nonexisting/libcuda.so.1"));
  CHECK(status.message ==
        "no device: this machine has no NVIDIA driver (/nonexisting/libcuda.so.1 was not found)");
}

}  // namespace maco::runtime
