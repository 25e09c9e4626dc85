// Each thing that the verifier refuses, in a small Program, by its reason.
#include "compiler/verify/verify.h"

#include <fmt/format.h>

#include <array>
#include <random>
#include <utility>

#include "compiler/verify/history.h"
#include "compiler/verify/regions.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using namespace ir;

/// What is said about the Program, as a user reads it; "" if it is right. With and without symmetry
/// the verdict is the same.
std::string verdict(const std::string& text) {
  Diagnostics diagnostics;
  const auto program = parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  Diagnostics other = diagnostics;
  const bool ok = verify::verify(*program, diagnostics);
  CHECK(ok == !diagnostics.has_errors());
  CHECK(verify::verify(*program, other, {.use_symmetry = false, .at_once = false}) == ok);
  return diagnostics.render();
}

TEST_CASE("a right Program is accepted at every stage") {
  CHECK(verdict(kSum) == "");
  for (const char* stage : {"scheduled", "planned", "tiled"})
    CHECK(verdict(with(kSum, "synced", stage)) == "");
}

TEST_CASE("a dropped wait is a race, told by the names of the graph") {
  const std::string told = verdict(with(kSum, "wait done; signal arrived", "signal arrived"));
  CHECK_THAT(
      told,
      Contains("p:11:3: error: race: matmul 'down' tile 0 (rank 0, launch 0) writes p[0:4, "
               "0:4], and exchange "
               "'y' (put) tile 0 (rank 0, launch 0) reads p[0:4, 0:8]: nothing orders the two"));
  CHECK_THAT(told, Contains("note: matmul 'down' tile 0 is task 0 of CTA 0; signals 'done'"));
}

TEST_CASE("a wait that takes one signal of two is refused by its count") {
  CHECK_THAT(verdict(with(kSum, "count=2", "count=1")),
             Contains("count: event 'done' counts to 1 a launch, but 2 signals arrive: exchange "
                      "'y' (put) tile 0 would start too early"));
  CHECK_THAT(verdict(with(kSum, "write p[0:4, 4:8]; signal done", "write p[0:4, 4:8]")),
             Contains("counts to 2 a launch, but 1 signals arrive: exchange 'y' (put) tile 0 "
                      "would never start"));
}

TEST_CASE("tasks of a stream in the wrong order hang or read too early") {
  // The task that waits for the peer stands before the one that sends to it, on both ranks.
  std::string text = with(kSum, "t2 c1#0 comm sm=2 place=0", "t2 c1#0 comm sm=2 place=1");
  text = with(text, "t3 c2#0 comm sm=2 place=1", "t3 c2#0 comm sm=2 place=0");
  const std::string told = verdict(text);
  CHECK_THAT(
      told,
      Contains(
          "p:12:3: error: deadlock: exchange 'y' (combine) tile 0 (rank 0) waits for a task that "
          "comes after it, and 3 tasks never start"));
  CHECK_THAT(told,
             Contains("note: exchange 'y' (combine) tile 0 (rank 0) waits for event 'arrived' of "
                      "exchange 'y' (put) tile 0 (rank 1)"));
  CHECK_THAT(told, Contains("note: exchange 'y' (put) tile 0 (rank 1) stands behind exchange "
                            "'y' (combine) tile "
                            "0 (rank 1) in the stream of CTA 2"));

  // The reader of q stands before its writer, and no event is there to show it.
  const std::string early = R"(program early stage=synced world=1 target=cpu ctas=1 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1
  buffer q : f32[1 x 8] temp offset=0
  buffer y : f32[1 x 8] output tensor=y
  call c0 = f op=first kind=exp (q)
  call c1 = f op=second kind=silu (q, y)
  task t0 c0#0 compute sm=0 place=1: write q[0:1, 0:8]
  task t1 c1#0 compute sm=0 place=0: read q[0:1, 0:8]; write y[0:1, 0:8]
}
)";
  CHECK_THAT(verdict(early), Contains("error: order: silu 'second' tile 0 reads q[0:1, 0:8] before "
                                      "exp 'first' tile 0 writes q[0:1, 0:8], but "
                                      "has to come after it"));
}

TEST_CASE("a slot that is used again a launch too early is a race") {
  // With one copy, a fast rank's next put meets the slow rank's read of this one. Two copies need
  // no acknowledgement here: a rank that is two launches ahead has heard from the other in between.
  const std::string once = with(kSum, "rotation=2 ", "");
  const std::string told = verdict(once);
  CHECK_THAT(
      told,
      Contains("race: exchange 'y' (combine) tile 0 (rank 0, launch 0) reads slots[0:2, 0:32], "
               "and exchange 'y' (put) tile 0 (rank 1, launch 1) writes "
               "slots[1:2, 0:32] on others: nothing orders the two"));
  // An acknowledgement of the launch before mends it.
  std::string acked = with(once, "event summed local", "event summed local\n  event ack peer");
  acked = with(acked, "wait done; signal", "wait done, ack from others lag 1; signal");
  acked = with(acked, "signal summed", "signal summed, ack to others");
  CHECK(verdict(acked) == "");
  // That of two launches ago comes too late.
  CHECK_THAT(verdict(with(acked, "lag 1", "lag 2")), Contains("race"));
}

TEST_CASE("a write to a peer that nobody signals is a race") {
  std::string text = with(kSum, "wait arrived from others; ", "");
  text = with(text, "; signal arrived to others", "");
  CHECK_THAT(verdict(text), Contains("(rank 1, launch 0) writes slots[1:2, 0:32] on others, and "
                                     "exchange 'y' (combine) tile 0 (rank 0, launch 0) reads "
                                     "slots[0:2, 0:32]: nothing orders the two"));
  CHECK_THAT(
      verdict(with(kSum, "; signal arrived to others", "")),
      Contains("count: exchange 'y' (combine) tile 0 on rank 0 waits for event 'arrived' from rank "
               "1, which never signals it there"));
  CHECK_THAT(
      verdict(with(kSum, "signal arrived to others", "signal arrived to others, arrived to all")),
      Contains("which signals it 2 times a launch"));
}

TEST_CASE("ranks that leave out a task that others wait for are refused") {
  CHECK_THAT(
      verdict(with(kSum, "sm=2 place=0:", "sm=2 place=0 ranks=0x1:")),
      Contains("count: exchange 'y' (combine) tile 0 on rank 0 waits for event 'arrived' from rank "
               "1, which never signals it there"));
  // A rank that leaves a task out still signals the task's local events.
  CHECK_THAT(verdict(with(kSum, "t1 c0#1 compute sm=1 place=0:",
                          "t1 c0#1 compute sm=1 place=0 ranks=0x1:")) +
                 "accepted",
             Contains("accepted"));
}

TEST_CASE("packets carry their own data and nothing else") {
  const std::string packets = with(with(kSum, "rotation=2 offset", "rotation=2 packets offset"),
                                   "arrived peer", "arrived packet");
  CHECK(verdict(packets) == "");
  // The slot is plain now: a packet event brings no release for it.
  CHECK_THAT(verdict(with(kSum, "arrived peer", "arrived packet")),
             Contains("waits for packets of event 'arrived', but reads none that"));
  // What else the sender wrote isn't seen.
  std::string more = with(packets, "  buffer y",
                          "  buffer plain : f32[2 x 8] slot rotation=2 offset=1024\n  buffer y");
  more = with(more, "may slots[0:1, 0:32 block=self*1 on=others]",
              "may slots[0:1, 0:32 block=self*1 on=others] plain[0:1, 0:8 block=self*1 on=others]");
  more = with(more, "slots[0:2, 0:32]; write q", "slots[0:2, 0:32] plain[0:2, 0:8]; write q");
  CHECK_THAT(verdict(more),
             Contains("writes plain[1:2, 0:8] on others, and exchange 'y' (combine) tile 0 "
                      "(rank 0, launch 0) reads plain[0:2, 0:8]"));
}

TEST_CASE("temporaries may share memory where events keep them apart") {
  // q over p: it is written while the put of p may still run? No: both are in the stream of CTA 2.
  // The other way round it fails.
  const std::string shared =
      with(with(kSum, "temp offset=256", "temp offset=0"),
           "read p[0:4, 0:8] slots[0:2, 0:32]; write q", "read slots[0:2, 0:32]; write q");
  CHECK(verdict(shared) == "");
  std::string apart = with(shared, "t3 c2#0 comm sm=2 place=1", "t3 c2#0 compute sm=1 place=1");
  CHECK_THAT(verdict(apart),
             Contains("race: exchange 'y' (put) tile 0 (rank 0, launch 0) reads p[0:4, "
                      "0:8], and exchange 'y' (combine) tile 0 (rank 0, launch 0) writes "
                      "q[0:4, 0:8], which share memory: nothing orders the two"));
}

TEST_CASE("orders that no data says are proved") {
  // The last task reads nothing that 'down' makes: its stream alone orders it after one of the two
  // tiles.
  const std::string apart =
      with(with(kSum, "sm=0 place=1: read q[0:4, 0:8]; write y[0:4, 0:8]; wait summed",
                "sm=0 place=1 after(c0): read x[0:4, 0:8]; write y[0:4, 0:8]"),
           "; signal summed", "");
  const std::string unsignalled = with(apart, "  event summed local\n", "");
  CHECK_THAT(verdict(unsignalled),
             Contains("order: silu 'out' tile 0 (rank 0, launch 0) may start before matmul 'down' "
                      "tile 1 (rank 0, launch 0) has ended, but has "
                      "to come after it"));
  CHECK(verdict(with(unsignalled, "write y[0:4, 0:8]\n", "write y[0:4, 0:8]; wait done\n")) == "");
}

TEST_CASE("a signal to a peer is waited for") {
  const std::string deaf =
      with(with(kSum, "read p[0:4, 0:8] slots[0:2, 0:32]; write q", "read p[0:4, 0:8]; write q"),
           "wait arrived from others; ", "");
  CHECK_THAT(verdict(deaf), Contains("count: exchange 'y' (put) tile 0 on rank 0 signals event "
                                     "'arrived' to rank 1, where nobody waits for it"));
}

TEST_CASE("what a stage promises is checked") {
  struct Case {
    const char *from, *to, *reason;
  };
  const Case cases[] = {
      {"world=2", "world=65", "world is 65, but has to be 1 to 64"},
      {"op=down", "op=\"down\\nint x;\"", "the name of a call has control characters"},
      {"op=down", "op=\"down \\\\\"", "the name of a call has control characters, backslashes"},
      {"buffer x :", "event \"\\x1b[0m\" local count=0\n  buffer x :",
       "the name of an event has control characters"},
      {"read x[0:4, 0:8]; write p[0:4, 0:4]", "read x[0:5, 0:8]; write p[0:4, 0:4]",
       "matmul 'down' tile 0 reads outside buffer 'x', which has 4 x 8 elements, on rank 0: rows 0 "
       "to 5, columns 0 to 8 of 8"},
      {"block=self*1 on", "block=self*2 on",
       "writes outside buffer 'slots', which has 2 x 32 elements, on rank 1: rows 0 to 1 of "
       "block self x 2"},
      {"write p[0:4, 0:4]", "write x[0:4, 0:4]", "writes input 'x', which belongs to the caller"},
      {"write q[0:4, 0:8]", "write q[0:4, 0:8 on=others]",
       "on rank 0 writes temp 'q' of others: peers may only write, and only slots"},
      {"wait arrived from others", "wait arrived from shift(2147483647)",
       "exchange 'y' (combine) tile 0 names the rank 2147483647 from its own; 64 are possible"},
      {"symmetric=2048", "symmetric=2049", "symmetric memory of 2049 bytes are not possible"},
      {"slots[0:2, 0:32]; write q", "slots[0:2, 0:32 on=others]; write q",
       "reads slot 'slots' of others"},
      {"write y[0:4", "write q[0:4", "order: no task writes output y[0:4, 0:8] on rank 0"},
      {"write y[0:4", "write y[0:3", "order: no task writes output y[3:4, 0:8] on rank 0"},
      {"read p[0:4, 0:8]; may", "read y[0:4, 0:8]; may",
       "order: exchange 'y' (put) tile 0 reads y[0:4, 0:8] before any task of the list writes it "
       "on rank 0"},
      {"temp offset=256", "temp", "temp 'q' has no address although the Program is synced"},
      {"output tensor=y", "output tensor=y offset=0",
       "output 'y' is the caller's memory, but has an address"},
      {"temp offset=256", "temp offset=250", "temp 'q' lies at 250, which is no multiple of 256"},
      {"temp offset=256", "temp offset=512",
       "temp 'q' lies at 512 and takes 128 bytes, but the arena has 512"},
      {"symmetric=2048", "symmetric=256",
       "slot 'slots' lies at 0 and takes 512 bytes, but symmetric memory has 256"},
      {"sm=1 place=0", "sm=3 place=0", "matmul 'down' tile 1 runs on CTA 3, but there are 3"},
      {"sm=1 place=0", "sm=0 place=0", "the stream of CTA 0 has a gap or two tasks at place 1"},
      {"sm=1 place=0", "sm=1 place=1", "the stream of CTA 1 has a gap"},
      {"comm sm=2 place=0", "comm sm=1 place=1",
       "exchange 'y' (put) tile 0 is comm work, but CTA 1 is a compute worker"},
      {"comm 2..3", "comm 2..3 [allgather]", "runs on CTA 2, which is not for 'exchange'"},
      {"comm 2..3", "comm 1..3", "CTA 1 has two roles"},
      {"wait summed", "wait summed from others", "waits for the local event 'summed' of others"},
      {"compute 0..2", "compute 0..1", "matmul 'down' tile 1 runs on CTA 1, which has no role"},
      {"rotation=2", "rotation=3", "buffer 'slots' has 3 copies, which is no power of two"},
      {"arrived peer", "arrived peer count=2", "event 'arrived' is a peer event with count 2"},
      {"compute sm=0 place=0:", "compute sm=0 place=0 after(c3):",
       "which the list of tasks has later"},
  };
  for (const Case& c : cases) CHECK_THAT(verdict(with(kSum, c.from, c.to)), Contains(c.reason));

  const std::string slots =
      with(kSum, "  buffer y", "  buffer more : f32[2 x 8] slot offset=256\n  buffer y");
  CHECK_THAT(verdict(slots), Contains("slots 'slots' and 'more' overlap"));
  const std::string tiled = with(with(kSum, "synced", "tiled"),
                                 "compute sm=0 place=0:", "compute sm=0 place=0 after(c3):");
  CHECK_THAT(
      verdict(tiled),
      Contains("order: matmul 'down' tile 0 comes after 'out', which the list of tasks has later"));
}

TEST_CASE("an error is not followed by a flood") {
  std::string text = with(kSum, "buffer x : f32[4 x 8]", "buffer x : f32[1 x 8]");
  Diagnostics diagnostics;
  const auto program = parse_program(diagnostics.add_file("p", text), diagnostics);
  REQUIRE(program);
  CHECK_FALSE(verify::verify(*program, diagnostics, {.max_reports = 1}));
  REQUIRE(diagnostics.all().size() == 2);
  CHECK(diagnostics.all()[1].message == "1 more such errors are not shown");
}

TEST_CASE("boxes overlap as their bytes do") {
  // Against sets of bytes, over all small boxes.
  std::vector<verify::Box> boxes;
  for (int64_t start : {0, 1, 5, 12, 20})
    for (int64_t pitch : {4, 6, 7})
      for (int64_t rows : {1, 2, 3})
        for (int64_t width : {1, 3, 4})
          boxes.push_back({start, rows == 1 ? 0 : pitch, rows, width});
  const auto has = [](const verify::Box& b, int64_t byte) {
    for (int64_t r = 0; r < b.rows; ++r)
      if (byte >= b.start + r * b.pitch && byte < b.start + r * b.pitch + b.width) return true;
    return false;
  };
  for (const verify::Box& a : boxes)
    for (const verify::Box& b : boxes) {
      bool meet = false, all = true;
      for (int64_t byte = 0; byte < 64; ++byte) {
        meet = meet || (has(a, byte) && has(b, byte));
        all = all && (!has(b, byte) || has(a, byte));
      }
      if (verify::overlap(a, b) != meet || (verify::covers(a, b) && !all)) {
        CAPTURE(a.start, a.pitch, a.rows, a.width, b.start, b.pitch, b.rows, b.width);
        CHECK(verify::overlap(a, b) == meet);
        CHECK((all || !verify::covers(a, b)));
      }
    }
}

TEST_CASE("the boxes that overlap one are found among many") {
  // Against a look at all: tiles of three matrices over the same bytes, runs of bytes, boxes that
  // reach beyond the end of their rows, empty ones, and some twice.
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random()) % n; };
  for (int round = 0; round < 60; ++round) {
    const bool wraps = round % 3 == 0;
    std::vector<verify::Box> boxes = {{}, {0, 0, 1, 4096}};
    for (int64_t n = 1 + below(300); n > 0; --n) {
      const int64_t pitch = std::array<int64_t, 3>{64, 96, 128}[static_cast<size_t>(below(3))];
      verify::Box b{below(4000), 0, 1, 1 + below(200)};
      if (below(4) > 0) {
        const int64_t width = 1 + below(24), column = below(wraps ? pitch : pitch - width);
        b = {below(16) * pitch + column, pitch, 2 + below(12), width};
      }
      boxes.push_back(b);
      if (below(5) == 0) boxes.push_back(b);
    }
    std::vector<uint32_t> ids;
    const verify::BoxTable table(boxes, ids, round % 2 == 0 ? size_t{1} << 20 : 0);
    for (int again = 0; again < 2; ++again)
      for (size_t i = 0; i < boxes.size(); ++i) {
        if (table[ids[i]] != boxes[i]) CHECK(table[ids[i]] == boxes[i]);
        if (boxes[i].empty()) continue;
        std::vector<int> found(table.size(), 0);
        for (const auto run : table.overlapping(ids[i]))
          for (uint32_t id = run.first; id < run.last; ++id) ++found[id];
        for (uint32_t id = 0; id < table.size(); ++id) {
          const bool meet = !table[id].empty() && verify::overlap(table[id], boxes[i]);
          if (found[id] != (meet ? 1 : 0)) {
            CAPTURE(round, id, ids[i]);
            CHECK(found[id] == (meet ? 1 : 0));
          }
        }
      }
  }
}

TEST_CASE("reads are remembered until a write has met them") {
  // `kMany` tasks read q at once; of a stream only the last has to be waited for. The one that
  // nothing orders before the write is found wherever it stands.
  constexpr int kCtas = 12, kMany = 60;
  for (int missing : {-1, 0, 11, 30, 48, 59}) {
    std::string text = fmt::format(
        "program p stage=synced world=1 target=cpu ctas={0} arena=256 {{\n"
        "  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384\n"
        "  limits sms={0} threads=1024 registers=65536 shared=65536\n"
        "  roles compute 0..{0}\n  buffer q : f32[1 x 8] temp offset=0\n"
        "  buffer y : f32[{1} x 8] output tensor=y\n"
        "  call c0 = f op=first kind=exp (q)\n  call c1 = f op=second kind=silu (q, y)\n"
        "  event made local\n",
        kCtas + 1, kMany);
    for (int i = 0; i < kMany; ++i)
      if (i != missing) text += fmt::format("  event e{} local\n", i);
    text += fmt::format("  task t0 c0#0 compute sm={} place=0: write q[0:1, 0:8]; signal made\n",
                        kCtas);
    for (int i = 0; i < kMany; ++i)
      text += fmt::format(
          "  task t{} c1#{} compute sm={} place={}: read q[0:1, 0:8]; write y[{}:{}, 0:8]; wait "
          "made{}\n",
          i + 1, i, i % kCtas, i / kCtas, i, i + 1,
          i == missing ? "" : fmt::format("; signal e{}", i));
    text += fmt::format("  task t{} c0#1 compute sm={} place=1: write q[0:1, 0:8]; wait ",
                        kMany + 1, kCtas);
    const char* separator = "";
    for (int i = 0; i < kMany; ++i)
      if (i != missing) text += fmt::format("{}e{}", std::exchange(separator, ", "), i);
    INFO("without " << missing);
    // A later task of the same stream makes up for one.
    if (missing < kMany - kCtas)
      CHECK(verdict(text + "\n}\n") == "");
    else
      CHECK_THAT(verdict(text + "\n}\n"),
                 Contains(fmt::format("race: silu 'second' tile {} reads", missing)));
  }
}

}  // namespace
}  // namespace maco::test
