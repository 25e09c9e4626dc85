// Checks find_dependencies against a comparison of every byte of every two tasks.
#include "compiler/passes/dependencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <random>
#include <set>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/block_heights.h"

namespace maco::test {
namespace {

using ir::index;
using ir::TaskId;

constexpr size_t kBytes = 512;  // a temporary of `rows` x `cols` bytes lies somewhere in them

ir::Call call(int64_t op) {
  ir::Call c;
  c.op = fmt::format("op{}", op);
  return c;
}

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}

  ir::Program program() {
    ir::Program p;
    p.world = 1 + below(3);
    p.values.push_back({ir::Expr::var("h"), {.lo = 1, .hi = 2}});
    for (const char* at : {"first", "second"})
      p.values.push_back({ir::Expr::var(at), {.lo = 0, .hi = 2}});
    for (int64_t b = 0; b < 2 + below(3); ++b) {
      ir::Buffer buffer;
      buffer.dtype = ir::DType::U8;
      buffer.kind = below(4) == 0 ? ir::BufferKind::State : ir::BufferKind::Temp;
      buffer.max_rows = 6;
      buffer.cols = below(2) == 0 ? 8 : 12;
      if (buffer.kind == ir::BufferKind::Temp) buffer.offset = below(8) * 8;
      p.buffers.push_back(buffer);
    }
    const int64_t calls = 1 + below(6);
    for (int64_t c = 0; c < calls; ++c) p.calls.push_back(call(below(3) == 0 ? 0 : c));
    const bool mixed = below(3) == 0;
    const int64_t tasks = 4 + below(40);
    for (int64_t t = 0; t < tasks; ++t) {
      ir::Task task;
      task.call =
          ir::id_of<ir::CallId>(static_cast<size_t>(mixed ? below(calls) : t * calls / tasks));
      if (below(4) == 0) task.ranks = 1 + static_cast<uint64_t>(below((1 << p.world) - 1));
      for (int64_t a = 0; a < 1 + below(3); ++a) task.accesses.push_back(access(p));
      if (below(8) == 0 && index(task.call) > 0)
        task.after.push_back(ir::id_of<ir::CallId>(index(task.call) - 1));
      p.tasks.push_back(task);
    }
    return p;
  }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }

  ir::Access access(const ir::Program& p) {
    ir::Access a;
    a.kind = std::vector{ir::AccessKind::Read, ir::AccessKind::Write,
                         ir::AccessKind::MayWrite}[static_cast<size_t>(below(3))];
    const auto b = static_cast<size_t>(below(std::ssize(p.buffers)));
    const ir::Buffer& buffer = p.buffers[b];
    a.region.buffer = ir::id_of<ir::BufferId>(b);
    a.region.pitch = below(6) == 0 ? 2 * buffer.cols : buffer.cols;
    const int64_t rows = buffer.max_rows * buffer.cols / a.region.pitch;
    if (below(6) > 0) {
      a.region.r0 = below(rows), a.region.r1 = a.region.r0 + 1 + below(rows - a.region.r0);
      a.region.c0 = below(a.region.pitch / 4) * 4;
      a.region.c1 = a.region.c0 + 4 + below((a.region.pitch - a.region.c0) / 4) * 4;
      if (below(8) == 0 && a.region.r1 + p.world <= rows) a.region.block = {.rows = 1};
      if (below(4) == 0 && a.region.r1 + 2 * (p.world - 1) <= rows) {
        a.region.block = {.ref = ir::RankRef::shift(static_cast<int32_t>(below(3))), .value = 0};
        if (a.region.r0 < 2) a.region.r1 = std::min<int64_t>(a.region.r1, 2);
      }
      // Mostly from one value, so that some are apart.
      if (buffer.kind == ir::BufferKind::State && a.kind != ir::AccessKind::Write && below(3) > 0 &&
          !a.region.block.any() && a.region.r1 + 2 <= rows)
        a.region.from = below(4) == 0 ? 2 : 1;
    } else {
      a.region.r1 = rows, a.region.c1 = a.region.pitch;
    }
    return a;
  }

  std::mt19937 random_;
};

// Which bytes an access may touch on a rank; those of a state lie behind the temporaries.
std::bitset<2 * kBytes> bytes(const ir::Program& p, const ir::Access& a, int64_t rank) {
  const ir::Region& r = a.region;
  const ir::Buffer& b = p[r.buffer];
  const int64_t base = b.offset.value_or(static_cast<int64_t>(kBytes + index(r.buffer) * 128));
  std::bitset<2 * kBytes> touched;
  const ir::Interval shift = ir::shift_of(p, r, static_cast<int>(rank));
  for (int64_t row = r.r0 + shift.lo; row < r.r1 + shift.hi; ++row)
    for (int64_t col = r.c0; col < r.c1; ++col)
      touched.set(static_cast<size_t>(base + row * r.pitch + col));
  return touched;
}

bool conflict(const ir::Program& p, const ir::Task& a, const ir::Task& b) {
  for (int64_t rank = 0; rank < p.world; ++rank) {
    if (!((a.ranks & b.ranks) >> rank & 1)) continue;
    if (std::find(b.after.begin(), b.after.end(), a.call) != b.after.end()) return true;
    for (const ir::Access& x : a.accesses)
      for (const ir::Access& y : b.accesses)
        if ((x.writes() || y.writes()) && (bytes(p, x, rank) & bytes(p, y, rank)).any() &&
            meet_at_some_height(p, x.region, static_cast<int>(rank), y.region,
                                static_cast<int>(rank)))
          return true;
  }
  return false;
}

// By task, the earlier ones that are ordered before it on `rank` by what was found.
std::vector<std::set<size_t>> ordered(const ir::Program& p, const passes::Dependencies& found,
                                      int64_t rank) {
  std::vector<std::set<size_t>> before(p.tasks.size());
  for (size_t t = 0; t < p.tasks.size(); ++t) {
    if (!(p.tasks[t].ranks >> rank & 1)) continue;
    for (uint32_t set : found.of(ir::id_of<TaskId>(t)))
      for (TaskId on : found.sets[set]) {
        CHECK(index(on) < t);
        if (!(p[on].ranks >> rank & 1)) continue;
        before[t].insert(index(on));
        before[t].insert(before[index(on)].begin(), before[index(on)].end());
      }
  }
  return before;
}

// The pairs that conflict, each of which must be ordered by what was found.
size_t check_order(const ir::Program& p, const passes::Dependencies& found) {
  size_t conflicts = 0;
  for (int64_t rank = 0; rank < p.world; ++rank) {
    const auto before = ordered(p, found, rank);
    for (size_t b = 0; b < p.tasks.size(); ++b)
      for (size_t a = 0; a < b; ++a) {
        const ir::Task &x = p.tasks[a], &y = p.tasks[b];
        if (!((x.ranks & y.ranks) >> rank & 1) || !conflict(p, x, y)) continue;
        // The two may conflict only on other ranks: look at the tasks as they run on this rank.
        ir::Task here = y;
        here.ranks = uint64_t{1} << rank;
        if (!conflict(p, x, here)) continue;
        ++conflicts;
        INFO("task " << b << " after task " << a << " on rank " << rank);
        REQUIRE(before[b].count(a) == 1);
      }
  }
  return conflicts;
}

TEST_CASE("whatever two tasks conflict about, the later one depends on the earlier") {
  size_t conflicts = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    const ir::Program p = Random(seed).program();
    const size_t most_among = seed % 2 == 0 ? passes::kMostAmong : 1;
    conflicts += check_order(p, passes::find_dependencies(p, most_among));
  }
  CHECK(conflicts > 50000);
}

// `calls` calls of n x n tiles of 4 x 4 bytes, each reading what the one before wrote.
ir::Program chain(int64_t calls, int64_t n) {
  ir::Program p;
  for (int64_t c = 0; c <= calls; ++c) {
    ir::Buffer b;
    b.dtype = ir::DType::U8;
    b.max_rows = b.cols = 4 * n;
    b.offset = c % 3 * 16 * n * n;
    p.buffers.push_back(b);
  }
  for (int64_t c = 0; c < calls; ++c) {
    p.calls.push_back(call(c));
    for (int64_t tile = 0; tile < n * n; ++tile) {
      const int64_t r = tile / n * 4, k = tile % n * 4;
      ir::Task task;
      task.call = ir::id_of<ir::CallId>(static_cast<size_t>(c));
      for (int64_t side : {0, 1}) {
        ir::Access a{side ? ir::AccessKind::Write : ir::AccessKind::Read, {}};
        a.region = {ir::id_of<ir::BufferId>(static_cast<size_t>(c + side)),
                    4 * n,
                    r,
                    r + 4,
                    k,
                    k + 4,
                    {},
                    ir::RankRef::self()};
        task.accesses.push_back(a);
      }
      p.tasks.push_back(task);
    }
  }
  return p;
}

// A gather of blocks of t rows, t <= `most`, in tiles of a row; then a reader of the whole.
ir::Program gathered(int64_t world, int64_t most) {
  ir::Program p;
  p.world = world;
  p.values.push_back({ir::Expr::var("t"), {.lo = 1, .hi = most}});
  p.buffers.emplace_back();
  p.buffers[0].dtype = ir::DType::U8;
  p.buffers[0].max_rows = world * most;
  p.buffers[0].cols = 4;
  p.buffers[0].offset = 0;
  p.calls = {call(0), call(1)};
  for (int64_t block = 0; block < world; ++block)
    for (int64_t row = 0; row < most; ++row) {
      ir::Access a{ir::AccessKind::MayWrite, {ir::BufferId{}, 4, row, row + 1, 0, 4, {}, {}}};
      a.region.block = {.ref = ir::RankRef::shift(static_cast<int32_t>(block)), .value = 0};
      ir::Task task;
      task.accesses = {a};
      p.tasks.push_back(task);
    }
  for (int64_t row = 0; row < world * most; ++row) {
    ir::Task task;
    task.call = ir::id_of<ir::CallId>(1);
    task.accesses = {{ir::AccessKind::Read, {ir::BufferId{}, 4, row, row + 1, 0, 4, {}, {}}}};
    p.tasks.push_back(task);
  }
  return p;
}

TEST_CASE(
    "blocks that are as high as the launch says are apart, and few sets hold who fills them") {
  const ir::Program p = gathered(8, 64);
  const passes::Dependencies found = passes::find_dependencies(p);
  size_t members = 0;
  for (const auto& set : found.sets) members += set.size();
  for (size_t t = 0; t < p.tasks.size(); ++t)
    CHECK(found.of(ir::id_of<TaskId>(t)).size() == (t < 8 * 64 ? 0 : 1));
  CHECK(found.sets.size() >= 3);
  CHECK(members <= 16 * p.tasks.size());
}

TEST_CASE("rows that begin where the launch says are apart, and whoever may read them all waits") {
  ir::Program p;
  p.values.push_back({ir::Expr::var("pos"), {.lo = 0, .hi = 64}});
  p.buffers.emplace_back();
  p.buffers[0].kind = ir::BufferKind::State;
  p.buffers[0].dtype = ir::DType::U8;
  p.buffers[0].max_rows = 128;
  p.buffers[0].cols = 4;
  p.calls = {call(0), call(1), call(2)};
  const auto task = [&](size_t of, ir::AccessKind kind, int64_t r0, int64_t r1,
                        std::optional<uint32_t> from) {
    ir::Task t;
    t.call = ir::id_of<ir::CallId>(of);
    t.accesses = {{kind, {ir::BufferId{}, 4, r0, r1, 0, 4, {}, {}, from}}};
    p.tasks.push_back(t);
  };
  for (int64_t row = 0; row < 64; row += 8) task(0, ir::AccessKind::MayWrite, row, row + 8, 0);
  task(1, ir::AccessKind::Read, 0, 128, std::nullopt);
  task(1, ir::AccessKind::Read, 8, 24, 0);
  task(2, ir::AccessKind::MayWrite, 16, 24, 0);
  const passes::Dependencies found = passes::find_dependencies(p);
  const auto on = [&](size_t t) {
    std::set<size_t> tasks;
    for (uint32_t set : found.of(ir::id_of<TaskId>(t)))
      for (TaskId other : found.sets[set]) tasks.insert(index(other));
    return tasks;
  };
  for (size_t t = 0; t < 8; ++t) CHECK(on(t).empty());
  CHECK(on(8) == std::set<size_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(on(9) == std::set<size_t>{1, 2});
  CHECK(on(10) == std::set<size_t>{2, 8, 9});
}

TEST_CASE("tiles depend on the tiles that they share bytes with, and on nothing long past") {
  const ir::Program p = chain(40, 8);
  const passes::Dependencies found = passes::find_dependencies(p);
  size_t most = 0, largest = 0;
  for (size_t t = 0; t < p.tasks.size(); ++t)
    most = std::max(most, found.of(ir::id_of<TaskId>(t)).size());
  for (const auto& set : found.sets) largest = std::max(largest, set.size());
  // What wrote the tile that is read, what read the tile that is overwritten, and what wrote that.
  CHECK(most <= 3);
  CHECK(largest == 1);
}

TEST_CASE("tiles of many calls that stand among each other depend on what they do call by call") {
  const ir::Program p = chain(40, 8);
  const passes::Dependencies by_calls = passes::find_dependencies(p);
  // As in a pipeline: all calls of a row of tiles, then those of the next.
  std::vector<size_t> order;
  for (size_t t = 0; t < p.tasks.size(); ++t) order.push_back(t);
  std::stable_sort(order.begin(), order.end(),
                   [](size_t a, size_t b) { return a % 64 / 8 < b % 64 / 8; });
  ir::Program among = p;
  for (size_t i = 0; i < order.size(); ++i) among.tasks[i] = p.tasks[order[i]];
  const auto tasks_of = [](const passes::Dependencies& found, size_t t) {
    std::set<size_t> tasks;
    for (uint32_t set : found.of(ir::id_of<TaskId>(t)))
      for (TaskId on : found.sets[set]) tasks.insert(index(on));
    return tasks;
  };
  const passes::Dependencies found = passes::find_dependencies(among);
  const auto of_all = passes::find_dependencies(among, among.calls.size());
  CHECK(of_all.on.size() > found.on.size());  // those of calls long past, too
  for (size_t i = 0; i < order.size(); ++i) {
    std::set<size_t> theirs;
    for (size_t on : tasks_of(found, i)) theirs.insert(order[on]);
    REQUIRE(theirs == tasks_of(by_calls, order[i]));
  }
}

TEST_CASE("tasks of calls that stand among each other in any order depend on what they must") {
  std::mt19937 random(3);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 60; ++round) {
    INFO("round " << round);
    ir::Program p = chain(8, 3);
    p.world = 2;
    // What goes through one tile doesn't wait for the others.
    std::vector<size_t> next(9, 0);
    std::vector<ir::Task> tasks;
    while (tasks.size() < p.tasks.size()) {
      const size_t tile = below(9);
      if (next[tile] == 8) continue;
      ir::Task task = p.tasks[9 * next[tile]++ + tile];
      if (round % 3 == 1 && below(4) == 0) task.ranks = 1 + below(3);
      if (round % 3 == 2 && below(8) == 0) task.after.push_back(ir::id_of<ir::CallId>(below(8)));
      tasks.push_back(task);
    }
    p.tasks = tasks;
    CHECK(check_order(p, passes::find_dependencies(p, 1)) > 100);
  }
}

}  // namespace
}  // namespace maco::test
