// The short proof of races: enough for what the compiler makes, and never a way to accept more.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "compiler/verify/regions.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using namespace ir;

/// What the compiler makes of a graph.
Program compiled(const std::string& text) {
  Diagnostics diagnostics;
  const auto graph = frontend::parse_graph(diagnostics.add_file("g.maco", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  std::optional<Program> last;
  options.after_pass = [&](const passes::Pass&, passes::Unit& unit) {
    if (const auto* p = std::get_if<Program>(&unit)) last = *p;
  };
  REQUIRE(api::compile(*graph, options, diagnostics, nullptr).has_value());
  REQUIRE(last.has_value());
  return std::move(*last);
}

struct Verdict {
  bool ok = false, at_once = false;
  std::string said;
};
Verdict verdict(const Program& p, bool at_once, bool symmetry = true, size_t forget_every = 0) {
  Diagnostics diagnostics;
  verify::VerifyStatistics statistics;
  Verdict v;
  v.ok = verify::verify(
      p, diagnostics, {.use_symmetry = symmetry, .at_once = at_once, .forget_every = forget_every},
      &statistics);
  v.at_once = statistics.at_once;
  v.said = diagnostics.render();
  return v;
}

// Two layers, so that memory is used again.
std::string layers(const std::string& rows, const std::string& algorithm) {
  return "graph g(world = 4) {\n  input x_0 : f32[" + rows + ", 256]\n" +
         "  repeat i in 0..2 {\n    param w_{i} : f32[256, 256]\n"
         "    n_{i} = softmax(x_{i})\n    o_{i} = matmul(n_{i}, w_{i}, transpose_b = true)\n"
         "    s_{i} = allreduce(o_{i}, algorithm = " +
         algorithm + ")\n    x_{i + 1} = add(x_{i}, s_{i})\n  }\n  output y = copy(x_2)\n}\n";
}

const std::pair<const char*, std::string> kGraphs[] = {
    {"one-shot", layers("2", "oneshot")},
    {"two-shot", layers("2", "twoshot")},
    {"large two-shot", layers("512", "twoshot")},
    {"all to all",
     "graph g(world = 4) {\n  input x : f32[16, 64]\n  a = alltoall(x)\n  b = allgather(a)\n"
     "  c = reduce_scatter(b)\n  d = ring_shift(c, by = 1)\n  output y = broadcast(d, root = 2)\n"
     "}\n"},
    {"broadcast",
     "graph g(world = 4) {\n  input x : f32[64, 96]\n"
     "  output y = broadcast(x, root = 1)\n}\n"},
    {"ring shift",
     "graph g(world = 4) {\n  input x : f32[64, 96]\n"
     "  output y = ring_shift(x, by = 1)\n}\n"},
    {"barriers",
     "graph g(world = 3) {\n  input x : f32[8, 32]\n  a = relu(x)\n  barrier()\n  barrier()\n"
     "  output y = exp(a)\n}\n"},
    {"a dim",
     "graph g(world = 4) {\n  dim t <= 64\n  input x : f32[t, 64]\n  a = allgather(x)\n"
     "  output y = softmax(a)\n}\n"},
    {"a state",
     "graph g(world = 1) {\n  state s : f32[64, 512]\n  input x : f32[64, 512]\n"
     "  repeat i in 0..8 {\n    s = add(s, x)\n  }\n}\n"},
};

/// Slots that a launch uses for one collective after another.
Program with_shared_slots(Program p) {
  std::map<std::pair<int64_t, int64_t>, BufferId> first;  // by shape
  std::vector<BufferId> instead;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const auto id = id_of<BufferId>(i);
    const Buffer& b = p.buffers[i];
    instead.push_back(b.kind == BufferKind::Slot
                          ? first.try_emplace({b.max_rows, b.cols}, id).first->second
                          : id);
  }
  for (Call& c : p.calls)
    for (BufferId& b : c.operands) b = instead[index(b)];
  for (Task& t : p.tasks)
    for (Access& a : t.accesses) a.region.buffer = instead[index(a.region.buffer)];
  return p;
}

TEST_CASE("the short proof is enough for what the compiler makes") {
  for (const auto& [name, graph] : kGraphs) {
    INFO(name);
    const Verdict v = verdict(compiled(graph), true);
    INFO(v.said);
    CHECK(v.ok);
    CHECK(v.at_once);
  }
}

TEST_CASE("the short proof is enough for slots that a launch uses twice") {
  for (const char* algorithm : {"oneshot", "twoshot"}) {
    const Program p = with_shared_slots(compiled(layers("2048", algorithm)));
    const Verdict v = verdict(p, true);
    INFO(algorithm << v.said);
    CHECK(v.ok);
    CHECK(v.at_once);
  }
}

TEST_CASE("packets of one place are written once a launch: their flags don't tell which they are") {
  for (const char* rows : {"2", "512"})
    for (const bool at_once : {true, false})
      CHECK_THAT(verdict(with_shared_slots(compiled(layers(rows, "twoshot"))), at_once).said,
                 Contains("count: ") && Contains("write the same packets of 's_0."));
}

// CTA 0 of each rank writes packets to the other twice. Who polls those of the second may see those
// of the first.
const std::string kTwice =
    R"(program twice stage=synced world=2 target=cpu ctas=1 symmetric=1024 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1
  buffer s : bf16[1 x 4] slot rotation=2 packets offset=0
  buffer y : bf16[1 x 4] output tensor=y
  call c0 = f op=first kind=exp (s)
  call c1 = f op=second kind=exp (s)
  call c2 = f op=take kind=exp (s, y)
  event arrived packet
  event before packet
  task t0 c0#0 compute sm=0 place=0: may s[0:1, 0:4 on=others]; signal before to others
  task t1 c1#0 compute sm=0 place=1: may s[0:1, 0:4 on=others]; signal arrived to others
  task t2 c2#0 compute sm=0 place=2: read s[0:1, 0:4]; write y[0:1, 0:4]; wait arrived from others, before from others
}
)";

TEST_CASE("nobody can tell packets apart that are written twice, in whatever order") {
  for (const bool at_once : {true, false})
    for (const bool symmetry : {true, false})
      CHECK_THAT(verdict(parse_text(kTwice), at_once, symmetry).said,
                 Contains("count: exp 'first' tile 0 of rank 0 and exp 'second' tile 0 of rank 0 "
                          "write the same packets of 's' on rank 1: a reader can't tell"));
}

// Two CTAs write a byte in common, the second in a block and around the end of a row.
const std::string kAround =
    R"(program around stage=synced world=1 target=cpu ctas=2 arena=512 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  dim h in [2, 3]
  value %0 = h in [2, 3]
  buffer p : u8[4 x 3] temp offset=256
  buffer y : u8[4 x 3] output tensor=y
  call c0 = f op=clear kind=exp (p)
  call c1 = f op=first kind=exp (p)
  call c2 = f op=second kind=exp (p)
  call c3 = f op=all kind=exp (p, y)
  event cleared local
  event done local
  task t0 c0#0 compute sm=0 place=0: write p[0:4, 0:3]; signal cleared
  task t1 c1#0 compute sm=0 place=1: may p[0:2, 2:3]
  task t2 c2#0 compute sm=1 place=0: may p[0:2, 1:3 block=self*%0]; wait cleared; signal done
  task t3 c3#0 compute sm=0 place=2: read p[0:4, 0:3]; write y[0:4, 0:3]; wait done
}
)";

TEST_CASE("boxes around the end of a row of the bytes that they are compared in are met") {
  for (const bool at_once : {true, false})
    CHECK_THAT(verdict(parse_text(kAround), at_once).said,
               Contains("race: exp 'first' tile 0") && Contains("exp 'second' tile 0"));
}

// On each rank CTA 1 asks once CTA 0 has written p, the next rank answers, and CTA 2 writes p
// again.
const std::string kReplies =
    R"(program replies stage=synced world=3 target=cpu ctas=3 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..3
  buffer p : f32[1 x 8] temp offset=0
  buffer y : f32[1 x 8] output tensor=y
  call c0 = f op=first kind=exp (p)
  call c1 = f op=ask kind=exp ()
  call c2 = f op=answer kind=exp ()
  call c3 = f op=second kind=exp (p)
  call c4 = f op=third kind=exp (p, y)
  event made local
  event asked peer
  event answered peer
  task t0 c0#0 compute sm=0 place=0: write p[0:1, 0:8]; signal made
  task t1 c1#0 compute sm=1 place=0: wait made; signal asked to shift(1)
  task t2 c2#0 compute sm=1 place=1: wait asked from shift(-1); signal answered to shift(-1)
  task t3 c3#0 compute sm=2 place=0: write p[0:1, 0:8]; wait answered from shift(1)
  task t4 c4#0 compute sm=2 place=1: read p[0:1, 0:8]; write y[0:1, 0:8]
}
)";

TEST_CASE("the short proof knows what a rank hears of itself from its peers") {
  for (const bool symmetry : {true, false}) {
    const Verdict v = verdict(parse_text(kReplies), true, symmetry);
    INFO(v.said);
    CHECK(v.ok);
    CHECK(v.at_once);
    // Who asks too early learns nothing.
    const Program early = parse_text(with(kReplies, "wait made; signal asked", "signal asked"));
    for (const bool at_once : {true, false})
      CHECK_THAT(verdict(early, at_once, symmetry).said,
                 Contains("race: exp 'first' tile 0 (rank 0) writes p[0:1, 0:8]"));
  }
}

// Each rank puts something into a slot of the next one, which takes it and says so to the one
// after; that one tells the first, which then uses the slot again.
const std::string kPassedOn =
    R"(program passed_on stage=synced world=3 target=cpu ctas=2 symmetric=1024 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  buffer slots : f32[1 x 32] slot rotation=2 offset=0
  buffer y : f32[1 x 32] output tensor=y
  call c0 = f op=put kind=exp (slots)
  call c1 = f op=take kind=exp (slots)
  call c2 = f op=say kind=exp ()
  call c3 = f op=again kind=exp (slots)
  call c4 = f op=last kind=exp (slots, y)
  event arrived peer
  event taken local
  event said peer
  event told peer
  event again peer
  task t0 c0#0 compute sm=0 place=0: may slots[0:1, 0:32 on=shift(1)]; signal arrived to shift(1)
  task t1 c1#0 compute sm=0 place=1: read slots[0:1, 0:32]; wait arrived from shift(-1); signal taken
  task t2 c2#0 compute sm=1 place=0: wait taken; signal said to shift(1)
  task t3 c2#1 compute sm=1 place=1: wait said from shift(-1); signal told to shift(1)
  task t4 c3#0 compute sm=0 place=2: may slots[0:1, 0:32 on=shift(1)]; wait told from shift(-1); signal again to shift(1)
  task t5 c4#0 compute sm=0 place=3: read slots[0:1, 0:32]; write y[0:1, 0:32]; wait again from shift(-1)
}
)";

TEST_CASE("the short proof knows what a third rank passes on") {
  for (const bool symmetry : {true, false}) {
    const Verdict v = verdict(parse_text(kPassedOn), true, symmetry);
    INFO(v.said);
    CHECK(v.ok);
    CHECK(v.at_once);
    const Program early = parse_text(with(kPassedOn, "wait taken; signal said", "signal said"));
    for (const bool at_once : {true, false})
      CHECK_THAT(verdict(early, at_once, symmetry).said,
                 Contains("race: exp 'take' tile 0") && Contains("reads slots[0:1, 0:32]"));
  }
}

// CTA 1 waits for the first to have written p on rank 0 only, and then writes p on both.
const std::string kLeftOut =
    R"(program left_out stage=synced world=2 target=cpu ctas=2 arena=512 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  buffer p : f32[1 x 8] temp offset=0
  buffer q : f32[1 x 8] temp offset=256
  buffer y : f32[1 x 8] output tensor=y
  call c0 = f op=first kind=exp (p)
  call c1 = f op=between kind=exp (q)
  call c2 = f op=second kind=exp (p)
  call c3 = f op=third kind=exp (p, y)
  event made local
  task t0 c0#0 compute sm=0 place=0: write p[0:1, 0:8]; signal made
  task t1 c1#0 compute sm=1 place=0 ranks=0x1: write q[0:1, 0:8]; wait made
  task t2 c2#0 compute sm=1 place=1: write p[0:1, 0:8]
  task t3 c3#0 compute sm=1 place=2: read p[0:1, 0:8]; write y[0:1, 0:8]
}
)";

TEST_CASE("a rank that leaves a task out has not waited for what the task waits for") {
  for (const size_t forget_every : {size_t{0}, size_t{1}})
    for (const bool at_once : {true, false}) {
      const Verdict v = verdict(parse_text(kLeftOut), at_once, true, forget_every);
      CHECK_FALSE(v.ok);
      CHECK_THAT(v.said, Contains("race: exp 'first' tile 0 (rank 1) writes p[0:1, 0:8]"));
      const std::string everywhere = with(kLeftOut, " ranks=0x1", "");
      CHECK(verdict(parse_text(everywhere), at_once, true, forget_every).ok);
    }
}

// The second writes p before the first, as the wait says and the list doesn't.
const std::string kWrongWayRound =
    R"(program wrong_way_round stage=synced world=1 target=cpu ctas=2 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  buffer p : f32[1 x 8] temp offset=0
  buffer y : f32[1 x 8] output tensor=y
  call c0 = f op=first kind=exp (p)
  call c1 = f op=second kind=exp (p)
  call c2 = f op=third kind=exp (p, y)
  event made local
  task t0 c0#0 compute sm=0 place=0: write p[0:1, 0:8]; wait made
  task t1 c1#0 compute sm=1 place=0: write p[0:1, 0:8]; signal made
  task t2 c2#0 compute sm=0 place=1: read p[0:1, 0:8]; write y[0:1, 0:8]
}
)";

TEST_CASE("what comes later in the list is remembered until its place in the list is past") {
  for (const size_t forget_every : {size_t{0}, size_t{1}})
    for (const bool at_once : {true, false})
      CHECK_THAT(verdict(parse_text(kWrongWayRound), at_once, true, forget_every).said,
                 Contains("order: exp 'second' tile 0 writes p[0:1, 0:8] before"));
}

// Two blocks of t rows each, side by side in p, of which each CTA fills one.
const std::string kBlocks =
    R"(program blocks stage=synced world=2 target=cpu ctas=2 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  dim t in [1, 4]
  value %0 = t in [1, 4]
  buffer p : f32[8 x 8] temp offset=0
  buffer y : f32[8 x 8] output tensor=y
  call c0 = f op=clear kind=exp (p)
  call c1 = f op=own kind=exp (p)
  call c2 = f op=other kind=exp (p)
  call c3 = f op=all kind=exp (p, y)
  event cleared local
  event filled local
  task t0 c0#0 compute sm=0 place=0: write p[0:8, 0:8]; signal cleared
  task t1 c1#0 compute sm=0 place=1: may p[0:4, 0:8 block=self*%0]
  task t2 c2#0 compute sm=1 place=0: may p[0:4, 0:8 block=shift(1)*%0]; wait cleared; signal filled
  task t3 c3#0 compute sm=0 place=2: read p[0:8, 0:8]; write y[0:8, 0:8]; wait filled
}
)";

TEST_CASE("blocks that are as high as the launch says are apart, and each may be anywhere") {
  const auto said = [](const std::string& text, bool at_once, bool symmetry, size_t forget_every) {
    const Verdict v = verdict(parse_text(text), at_once, symmetry, forget_every);
    CHECK(v.ok == v.said.empty());
    CHECK(v.at_once == (at_once && v.ok));
    return v.said;
  };
  // What t2 may write holds the rows of t1, but is no cover of them: t3 meets t1, and t2 never.
  std::string hidden = with(kBlocks, "may p[0:4, 0:8 block=self*%0]\n",
                            "may p[4:6, 0:8]\n"
                            "  task t2 c1#1 compute sm=0 place=2: "
                            "may p[0:3, 0:8 block=shift(1)*%0]\n");
  hidden = with(hidden, "task t3 c3#0 compute sm=0 place=2", "task t4 c3#0 compute sm=0 place=3");
  hidden = with(hidden, "task t2 c2#0 compute sm=1 place=0: may p[0:4, 0:8",
                "task t3 c2#0 compute sm=1 place=0: may p[3:4, 0:8");
  for (const bool at_once : {true, false})
    for (const bool symmetry : {true, false})
      for (const size_t forget_every : {size_t{0}, size_t{1}}) {
        CHECK(said(kBlocks, at_once, symmetry, forget_every) == "");
        CHECK_THAT(said(with(kBlocks, "block=shift(1)*%0", "block=self*%0"), at_once, symmetry,
                        forget_every),
                   Contains("race: exp 'own' tile 0"));
        // Rows of one block are rows, whatever its height.
        const std::string below =
            with(with(kBlocks, "block=shift(1)*%0", "block=self*%0"),
                 "may p[0:4, 0:8 block=self*%0]\n", "may p[0:2, 0:8 block=self*%0]\n");
        CHECK(said(with(below, "may p[0:4, 0:8", "may p[2:4, 0:8"), at_once, symmetry,
                   forget_every) == "");
        CHECK_THAT(
            said(with(below, "may p[0:4, 0:8", "may p[1:4, 0:8"), at_once, symmetry, forget_every),
            Contains("race: exp 'own' tile 0"));
        // A row that isn't counted from a block may be of any.
        CHECK_THAT(said(with(kBlocks, "may p[0:4, 0:8 block=shift(1)*%0]", "may p[3:4, 0:8]"),
                        at_once, symmetry, forget_every),
                   Contains("race: exp 'own' tile 0"));
        CHECK_THAT(said(hidden, at_once, symmetry, forget_every),
                   Contains("race: exp 'own' tile 0"));
      }
}

TEST_CASE("the short proof accepts nothing that following all launches refuses") {
  for (const auto& [name, graph] : kGraphs)
    for (const bool shared : {false, true}) {
      Program p = compiled(graph);
      if (p.tasks.size() > 800) continue;
      if (shared) p = with_shared_slots(std::move(p));
      int wrong = 0;
      const size_t step = 1 + p.tasks.size() / 60;
      for (size_t t = 0; t < p.tasks.size(); t += step)
        for (size_t w = 0; w < p.tasks[t].waits.size(); ++w) {
          Program damaged = p;
          damaged.tasks[t].waits.erase(damaged.tasks[t].waits.begin() +
                                       static_cast<std::ptrdiff_t>(w));
          const Verdict quick = verdict(damaged, true, true, t % 4), full = verdict(damaged, false);
          INFO(name << (shared ? ", shared slots" : "") << ": task " << t << " without wait " << w);
          REQUIRE(quick.ok == full.ok);
          REQUIRE(quick.said == full.said);
          wrong += !full.ok;
        }
      if (p.events.size() > 0) CHECK(wrong > 0);
    }
}

// A box of one to six rows; `space`: it has the same place there, and another one in memory.
verify::Box random_box(std::mt19937& random, int64_t pitch, int32_t space) {
  const auto below = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  verify::Box b{pitch * below(8), 0, 1, pitch * (1 + below(4))};
  if (below(4) > 0)
    b = {pitch * below(8) + 8 * below(4), pitch, 2 * (1 + below(3)), 8 * (1 + below(3))};
  if (space == 0) return b;
  verify::Box there{1000, 0, 1, 1000};
  there.space = space;
  there.start_in_space = b.start;
  there.pitch_in_space = static_cast<int32_t>(b.pitch);
  there.rows_in_space = static_cast<int32_t>(b.rows);
  there.width_in_space = static_cast<int32_t>(b.width);
  return there;
}
std::set<int64_t> bytes_of(verify::Box b) {
  if (b.space != 0) b = b.in_space();
  std::set<int64_t> bytes;
  for (int64_t row = 0; row < b.rows; ++row)
    for (int64_t i = 0; i < b.width; ++i) bytes.insert(b.start + row * b.pitch + i);
  return bytes;
}

TEST_CASE("nothing is left of a box only where others hold each of its bytes") {
  std::mt19937 random(1);
  for (const int32_t space : {0, 1}) {
    int64_t in_parts = 0;
    for (int round = 0; round < 3000; ++round) {
      const verify::Box whole = random_box(random, 32, space);
      std::set<int64_t> left = bytes_of(whole);
      verify::Rest rest;
      for (int i = 0; i < 30; ++i) {
        const int32_t theirs = i % 4 == 3 ? 2 * space : space;
        const verify::Box part = random_box(random, i % 5 == 4 ? 48 : 32, theirs);
        const bool none = rest.take(whole, part);
        if (theirs == space)
          for (const int64_t byte : bytes_of(part)) left.erase(byte);
        INFO("space " << space << ", round " << round << ", part " << i);
        if (!none) continue;
        REQUIRE(left.empty());
        in_parts += !verify::covers(part, whole);
        break;
      }
    }
    CHECK(in_parts > 20);
  }
}

TEST_CASE("nothing is left of rows that tiles hold, in any order") {
  for (const bool run : {false, true}) {
    const verify::Box whole = run ? verify::Box{96, 0, 1, 8 * 96} : verify::Box{96, 96, 8, 90};
    std::vector<verify::Box> tiles;
    for (int64_t row = 0; row < 8; row += 4)
      for (int64_t column = 0; column < 96; column += 32)
        tiles.push_back({96 + row * 96 + column, 96, 4, 32});
    std::mt19937 random(2);
    for (int round = 0; round < 50; ++round) {
      std::shuffle(tiles.begin(), tiles.end(), random);
      verify::Rest rest;
      for (size_t i = 0; i < tiles.size(); ++i)
        CHECK(rest.take(whole, tiles[i]) == (i + 1 == tiles.size()));
    }
  }
}

TEST_CASE("what several tiles have overwritten is forgotten") {
  const auto pairs = [](int products) {
    std::string text = "graph g {\n  input x_0 : f32[256, 256]\n  repeat i in 0.." +
                       std::to_string(products) +
                       " {\n    param w_{i} : f32[256, 256]\n"
                       "    x_{i + 1} = matmul(x_{i}, w_{i}, transpose_b = true)\n  }\n"
                       "  output y = copy(x_" +
                       std::to_string(products) + ")\n}\n";
    Diagnostics diagnostics;
    verify::VerifyStatistics statistics;
    REQUIRE(verify::verify(compiled(text), diagnostics, {}, &statistics));
    CHECK(statistics.at_once);
    return statistics.pairs;
  };
  CHECK(pairs(80) < 3 * pairs(40));
}

}  // namespace
}  // namespace maco::test
