// Predicted times of launches: small Programs whose times can be computed by hand.
#include "compiler/cost/timeline.h"

#include <string>
#include <vector>

#include "ir/program_text.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

// Round figures: 1,000 bytes a microsecond of memory, of which an SM takes 400 through its loader
// and 100 without; 500 to peers, of which an SM sends 250.
cost::Machine machine() {
  cost::Machine m = *cost::find_machine("cpu");
  m.sms = 4;
  m.memory_rate.value = 1e9;
  m.sm_memory_rate.value = 4e8;
  m.sm_plain_rate.value = 1e8;
  m.link_rate.value = 5e8;
  m.sm_link_rate.value = 2.5e8;
  m.hand_over.value = 2;
  m.packet_hand_over.value = 1;
  m.hop.value = 3;
  return m;
}

ir::Program program(int64_t world, int32_t ctas) {
  ir::Program p;
  p.stage = ir::Stage::Synced;
  p.world = world;
  p.target = "cpu";
  p.ctas = ctas;
  p.uses.pages = 4;
  p.uses.page_bytes = 250;
  for (const auto kind : {ir::BufferKind::Param, ir::BufferKind::Temp, ir::BufferKind::Slot}) {
    ir::Buffer b;
    b.name = "b" + std::to_string(p.buffers.size());
    b.kind = kind;
    b.dtype = ir::DType::U8;
    b.rows = ir::Expr(1);
    b.cols = 100000;
    p.buffers.push_back(b);
  }
  ir::Call plain, paged;
  plain.function = "plain";
  plain.operands = {ir::id_of<ir::BufferId>(1), ir::id_of<ir::BufferId>(2)};
  paged.function = "paged";
  paged.operands = {ir::id_of<ir::BufferId>(0)};
  ir::Load load;
  load.operand = 0;
  load.ahead = true;
  paged.loads = {load};
  p.calls = {plain, paged};
  return p;
}

struct Kept {
  ir::Program p;
  std::vector<cost::Work> works;
  // A task that touches so many bytes of a buffer (0: of the pages' operand, 1: of a temporary, 2:
  // of a peer's slot).
  ir::TaskId add(int32_t sm, int buffer, int64_t bytes, double fixed,
                 ir::RankRef where = ir::RankRef::self()) {
    ir::Task t;
    t.call = ir::id_of<ir::CallId>(buffer == 0 ? 1 : 0);
    t.sm = sm;
    t.place = 0;
    for (const ir::Task& other : p.tasks) t.place += other.sm == sm;
    ir::Access a;
    a.kind = buffer == 0 ? ir::AccessKind::Read : ir::AccessKind::Write;
    a.region.buffer = ir::id_of<ir::BufferId>(static_cast<size_t>(buffer));
    a.region.pitch = 100000;
    a.region.r1 = 1;
    a.region.c1 = bytes;
    a.region.where = where;
    if (bytes > 0) t.accesses = {a};
    p.tasks.push_back(t);
    cost::Work w;
    w.bytes = buffer == 2 ? 0 : static_cast<double>(bytes);
    w.fixed_microseconds = fixed;
    works.push_back(w);
    return ir::id_of<ir::TaskId>(p.tasks.size() - 1);
  }
  ir::EventId event(ir::EventKind kind, uint32_t count) {
    ir::Event e;
    e.name = "e" + std::to_string(p.events.size());
    e.kind = kind;
    e.count = count;
    p.events.push_back(e);
    return ir::id_of<ir::EventId>(p.events.size() - 1);
  }
  void signal(ir::TaskId task, ir::EventId event, ir::RankRef to = ir::RankRef::self()) {
    p[task].signals.push_back({event, to, false});
  }
  void wait(ir::TaskId task, ir::EventId event, ir::RankRef from = ir::RankRef::self()) {
    p[task].waits.push_back({event, from, 0, false});
  }
  cost::LaunchTimes times() {
    auto found = cost::launch_times(p, works, machine());
    REQUIRE(found);
    return *found;
  }
};

TEST_CASE("tasks of an SM follow each other, and other SMs hear of them later") {
  Kept k{program(1, 2), {}};
  const auto a = k.add(0, 1, 0, 5), b = k.add(0, 1, 0, 7), c = k.add(1, 1, 0, 1);
  const auto done = k.event(ir::EventKind::Local, 2);
  k.signal(a, done);
  k.signal(b, done);
  k.wait(c, done);
  const cost::LaunchTimes t = k.times();
  CHECK(t.at(0, a).worked == Approx(5));
  CHECK(t.at(0, b).waited == Approx(5));
  CHECK(t.at(0, c).begun == Approx(0));
  CHECK(t.at(0, c).waited == Approx(5 + 7 + 2));
  CHECK(t.end == Approx(15));
  SECTION("a task on the SM that signalled last waits for the others alone") {
    Kept own{program(1, 2), {}};
    const auto x = own.add(0, 1, 0, 5), y = own.add(1, 1, 0, 1), z = own.add(0, 1, 0, 1);
    const auto both = own.event(ir::EventKind::Local, 2);
    own.signal(x, both);
    own.signal(y, both);
    own.wait(z, both);
    CHECK(own.times().at(0, z).waited == Approx(5));
    own.works[ir::index(y)].fixed_microseconds = 4;
    CHECK(own.times().at(0, z).waited == Approx(6));
  }
  SECTION("hints are heard of sooner") {
    k.p[done].kind = ir::EventKind::Hint;
    CHECK(k.times().at(0, c).waited == Approx(5 + 7 + 1));
  }
}

TEST_CASE("memory is shared among those who use it at that moment") {
  Kept k{program(1, 4), {}};
  SECTION("alone, an SM gets no more than it can take") {
    const auto a = k.add(0, 1, 1000, 0);
    CHECK(k.times().at(0, a).worked == Approx(10));
  }
  SECTION("loaders of all SMs share the rate, and get more as others end") {
    // 250 each until the last has 1,000 bytes less than it needs; then 400.
    std::vector<ir::TaskId> tasks;
    for (int32_t sm = 0; sm < 4; ++sm) tasks.push_back(k.add(sm, 0, sm == 3 ? 2000 : 1000, 0));
    const cost::LaunchTimes t = k.times();
    CHECK(t.at(0, tasks[0]).worked == Approx(4));
    CHECK(t.at(0, tasks[3]).worked == Approx(4 + 1000 / 400.0));
  }
  SECTION("a slow user leaves the rest to the others") {
    // 100 for the one without a loader, 300 each for three loaders.
    std::vector<ir::TaskId> tasks{k.add(0, 1, 400, 0)};
    for (int32_t sm = 1; sm < 4; ++sm) tasks.push_back(k.add(sm, 0, 1200, 0));
    const cost::LaunchTimes t = k.times();
    CHECK(t.at(0, tasks[0]).worked == Approx(4));
    CHECK(t.at(0, tasks[1]).worked == Approx(4));
  }
}

TEST_CASE("a loader runs ahead of the waits, as far as its ring has room") {
  Kept k{program(1, 2), {}};
  const auto slow = k.add(1, 1, 0, 100), paged = k.add(0, 0, 3000, 0);
  const auto done = k.event(ir::EventKind::Local, 1);
  k.signal(slow, done);
  k.wait(paged, done);
  // 1,000 bytes are in the ring by then; 2,000 more come at 400 a microsecond.
  const cost::LaunchTimes t = k.times();
  CHECK(t.at(0, paged).filling == Approx(0));
  CHECK(t.at(0, paged).waited == Approx(102));
  CHECK(t.at(0, paged).worked == Approx(102 + 2000 / 400.0));
  CHECK(t.at(0, paged).pages == Approx(2000 / 400.0));
  SECTION("what depends on the waits is fetched behind them") {
    k.p.calls[1].loads[0].ahead = false;
    CHECK(k.times().at(0, paged).worked == Approx(102 + 3000 / 400.0));
  }
  SECTION("arithmetic and loads overlap") {
    const cost::Machine m = machine();
    k.works[ir::index(paged)].multiply_adds = 1e-6 * m.f32_reached * m.f32_flops / 2 / m.sms * 30;
    CHECK(k.times().at(0, paged).worked == Approx(102 + 30));
  }
}

TEST_CASE("ranks hear each other after a hop, and share their links") {
  Kept k{program(4, 2), {}};
  const auto put = k.add(0, 2, 500, 0, ir::RankRef::others()), take = k.add(1, 1, 0, 1);
  const auto there = k.event(ir::EventKind::Peer, 1);
  k.signal(put, there, ir::RankRef::others());
  k.wait(take, there, ir::RankRef::others());
  const cost::LaunchTimes t = k.times();
  CHECK(t.class_of == std::vector<size_t>{0, 0, 0, 0});
  CHECK(t.spans.size() == 1);
  // 500 bytes to each of three peers, 250 a microsecond from one SM.
  CHECK(t.at(2, put).worked == Approx(1500 / 250.0));
  CHECK(t.at(2, take).waited == Approx(6 + 3));
  SECTION("a rank that does less is another class") {
    k.p[put].ranks = 0b0111;
    k.wait(put, k.event(ir::EventKind::Local, 0));
    k.p[put].waits.clear();
    k.p[take].waits[0].from = ir::RankRef::shift(1);
    k.p[take].ranks = 0b1011;
    const std::vector<size_t> classes = cost::rank_classes(k.p);
    CHECK(classes[3] != classes[0]);
    CHECK(classes[2] != classes[0]);  // it doesn't take, and its peer doesn't put
    CHECK(classes[1] != classes[0]);  // its peer doesn't take
  }
}

TEST_CASE("tasks that wait for each other for ever have no times") {
  Kept k{program(1, 1), {}};
  const auto a = k.add(0, 1, 0, 1), b = k.add(0, 1, 0, 1);
  const auto done = k.event(ir::EventKind::Local, 1);
  k.wait(a, done);
  k.signal(b, done);
  CHECK(!cost::launch_times(k.p, k.works, machine()));
}

}  // namespace
}  // namespace maco::test
