// Small random Programs that a simple rule synchronised, and damage to them.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ir/program.h"

namespace maco::test {

using namespace ir;

/// The same seed gives the same Programs.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {}

  /// At most six tasks on at most three CTAs.
  void keep_small() { small_ = true; }
  /// Some regions lie in blocks whose height only the launch knows: value 0, 2 or 3; some of states
  /// begin at a row that it knows: value 1, 0 to 2.
  void with_heights() { heights_ = true; }

  Program program() {
    p_ = {};
    p_.name = "random";
    p_.stage = Stage::Synced;
    p_.world = below(3) == 0 ? 1 : 2 + below(2);
    exchanges_ = 0;
    p_.target = "cpu";
    p_.ctas = static_cast<int32_t>(1 + below(3));
    p_.uses = {.consumers = 256,
               .loaders = 32,
               .registers = 224,
               .head_bytes = 3072,
               .scratch_bytes = 16384};
    p_.limits = {8, 1024, 65536, 65536};
    p_.roles = {{Role::Compute, 0, p_.ctas, {}}};
    if (heights_) {
      p_.variables = {{.name = "h", .range = {.lo = 2, .hi = kMostHeight}}};
      p_.variables.push_back({.name = "at", .range = {.lo = 0, .hi = kMostFirst}});
      for (const Variable& v : p_.variables) p_.values.push_back({Expr::var(v.name), v.range});
    }
    buffers();
    p_.calls = {{"a", "op", "f", {}, {}, {}, {}, {}, {}}};
    const int64_t tasks =
        small_ ? (p_.world > 1 ? 1 + below(3) : 2 + below(5)) : 2 + below(p_.world > 1 ? 6 : 9);
    for (int64_t i = 0; i < tasks; ++i) task(static_cast<uint32_t>(i));
    if (p_.world > 1)
      for (int64_t n = small_ ? (tasks == 1 ? 1 + below(2) : 1) : 1 + below(3); n > 0; --n)
        exchange();
    for (size_t i = 0; i < p_.tasks.size(); ++i) p_.tasks[i].tile = static_cast<uint32_t>(i);
    if (below(3) == 0) {  // a second op, some of whose tasks come after the first
      p_.calls.push_back(p_.calls[0]);
      for (size_t i = p_.tasks.size() - p_.tasks.size() / 3; i < p_.tasks.size(); ++i) {
        p_.tasks[i].call = id_of<CallId>(1);
        if (below(2) == 0) p_.tasks[i].after.push_back(id_of<CallId>(0));
      }
    }
    std::vector<int32_t> next(static_cast<size_t>(p_.ctas), 0);
    for (Task& t : p_.tasks) {
      t.sm = static_cast<int32_t>(below(p_.ctas));
      t.place = next[static_cast<size_t>(t.sm)]++;
    }
    sync();
    return p_;
  }

  /// One change of something that a pass may get wrong.
  void damage(Program& p) {
    Task& t = p.tasks[pick(p.tasks)];
    switch (below(14)) {
      case 0:
      case 1:
        if (!t.waits.empty()) t.waits.erase(t.waits.begin() + below(size(t.waits)));
        break;
      case 2:
        if (!t.signals.empty()) t.signals.erase(t.signals.begin() + below(size(t.signals)));
        break;
      case 3:
        if (!p.events.empty()) p.events[pick(p.events)].count += below(2) ? 1u : ~0u;
        break;
      case 4: {
        Task& u = p.tasks[pick(p.tasks)];
        std::swap(t.sm, u.sm);
        std::swap(t.place, u.place);
        break;
      }
      case 5:
        if (!t.accesses.empty())
          t.accesses[pick(t.accesses)].region.buffer = id_of<BufferId>(pick(p.buffers));
        break;
      case 6:
        if (!t.accesses.empty()) {
          Access& a = t.accesses[pick(t.accesses)];
          a.kind = static_cast<AccessKind>(below(3));
        }
        break;
      case 7:
        if (!t.waits.empty()) t.waits[pick(t.waits)].lag = static_cast<uint32_t>(below(4));
        break;
      case 8:
        if (!t.waits.empty()) t.waits[pick(t.waits)].from = ref(p.world);
        break;
      case 9:
        if (!t.signals.empty()) t.signals[pick(t.signals)].to = ref(p.world);
        break;
      case 10: t.ranks = static_cast<uint64_t>(below(int64_t{1} << p.world)); break;
      case 11: {
        Buffer& b = p.buffers[pick(p.buffers)];
        if (b.kind == BufferKind::Temp) b.offset = 256 * below(3);
        if (b.kind == BufferKind::Slot && b.packets && below(3) == 0)
          b.use = below(3);
        else if (b.kind == BufferKind::Slot)
          b.rotation = int64_t{1} << below(3);
        break;
      }
      case 12:
        if (!p.events.empty()) p.events[pick(p.events)].kind = static_cast<EventKind>(below(3));
        break;
      default:
        if (!t.accesses.empty()) {
          Region& r = t.accesses[pick(t.accesses)].region;
          r.block = {.rows = below(2)};
          r.from.reset();
          r.r0 = below(2);
          r.r1 = r.r0 + 1 + below(2);
        }
    }
  }

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }

 private:
  template <class T>
  static int64_t size(const T& list) {
    return static_cast<int64_t>(list.size());
  }
  template <class T>
  size_t pick(const T& list) {
    return static_cast<size_t>(below(size(list)));
  }
  RankRef ref(int64_t world) {
    switch (below(5)) {
      case 0: return RankRef::self();
      case 1: return RankRef::others();
      case 2: return RankRef::all();
      case 3: return RankRef::rank(static_cast<int32_t>(below(world)));
      default: return RankRef::shift(static_cast<int32_t>(below(5) - 2));
    }
  }

  void buffers() {
    const DType types[] = {DType::F32, DType::BF16, DType::U8};
    const int64_t n = 2 + below(3);
    for (int64_t i = 0; i < n; ++i) {
      Buffer b;
      b.name = "b" + std::to_string(i);
      b.kind = below(3) == 0 ? BufferKind::State : BufferKind::Temp;
      b.dtype = types[below(3)];
      b.max_rows = heights_ && below(2) == 0 ? kMostHeight * p_.world : 4 + below(3);
      b.rows = Expr(b.max_rows);
      b.cols = 1 + below(6);
      if (b.kind == BufferKind::Temp) b.offset = below(4) == 0 ? 0 : 256 * i;
      p_.buffers.push_back(b);
    }
    p_.arena_bytes = 256 * 8;
    private_ = n;
  }

  Region region(size_t buffer) {
    const Buffer& b = p_.buffers[buffer];
    Region r;
    r.buffer = id_of<BufferId>(buffer);
    if (small_ && !b.packets && below(3) == 0) {
      r.pitch = r.c1 = b.cols;
      r.r1 = b.max_rows;
      return r;
    }
    r.pitch = b.packets || below(4) ? b.cols : 1 + below(b.cols + 2);
    const int64_t rows = b.max_elements() / r.pitch;
    r.block = {.rows = rows > 4 ? below(2) : 0};
    const int64_t most = rows - r.block.rows * (p_.world - 1);
    r.r0 = below(most);
    r.r1 = r.r0 + 1 + below(std::min<int64_t>(most - r.r0, 3));
    r.c0 = below(r.pitch);
    r.c1 = r.c0 + 1 + below(r.pitch - r.c0);
    return r;
  }

  /// A region in blocks, with rows that exist whatever the blocks' height.
  Region in_block(size_t buffer) {
    const Buffer& b = p_.buffers[buffer];
    Region r;
    r.buffer = id_of<BufferId>(buffer);
    r.pitch = b.cols;
    r.block.value = 0;
    if (below(2) == 0) r.block.ref = RankRef::shift(static_cast<int32_t>(below(3)));
    r.r0 = below(2);
    r.r1 = r.r0 + 1 + below(kMostHeight - r.r0);
    r.c0 = below(r.pitch);
    r.c1 = r.c0 + 1 + below(r.pitch - r.c0);
    return r;
  }

  /// A region of a state that begins at a row that the launch gives.
  Region from_row(size_t buffer) {
    const Buffer& b = p_.buffers[buffer];
    Region r;
    r.buffer = id_of<BufferId>(buffer);
    r.pitch = b.cols;
    r.from = 1;
    const int64_t rows = b.max_rows - kMostFirst;
    r.r0 = below(rows);
    r.r1 = r.r0 + 1 + below(rows - r.r0);
    r.c0 = below(r.pitch);
    r.c1 = r.c0 + 1 + below(r.pitch - r.c0);
    return r;
  }

  void task(uint32_t i) {
    Task t;
    if (p_.world > 1 && below(6) == 0)
      t.ranks = 1 + static_cast<uint64_t>(below((int64_t{1} << p_.world) - 1));
    // Reads follow a first write of everything, so that they read something.
    for (int64_t b = 0; i == 0 && b < private_; ++b) {
      const Buffer& whole = p_.buffers[static_cast<size_t>(b)];
      // Where several buffers share one place, only the last is written.
      if (std::any_of(p_.buffers.begin() + b + 1, p_.buffers.end(), [&](const Buffer& other) {
            return whole.offset && other.offset == whole.offset;
          }))
        continue;
      t.accesses.push_back({AccessKind::Write,
                            {id_of<BufferId>(static_cast<size_t>(b)),
                             whole.cols,
                             0,
                             whole.max_rows,
                             0,
                             whole.cols,
                             {},
                             {}}});
    }
    if (i == 0) {
      t.ranks = ~uint64_t{0};
    } else {
      for (int64_t n = 1 + below(2); n > 0; --n) {
        const auto buffer = static_cast<size_t>(below(private_));
        // Within a task nothing is ordered.
        if (std::any_of(t.accesses.begin(), t.accesses.end(), [&](const Access& a) {
              const Buffer &x = p_[a.region.buffer], &y = p_.buffers[buffer];
              return &x == &y || (x.offset && x.offset == y.offset);
            }))
          continue;
        const bool heights =
            heights_ && below(3) > 0 && p_.buffers[buffer].max_rows >= kMostHeight * p_.world;
        const bool from = heights_ && p_.buffers[buffer].kind == BufferKind::State && below(3) > 0;
        t.accesses.push_back({static_cast<AccessKind>(below(3)), from      ? from_row(buffer)
                                                                 : heights ? in_block(buffer)
                                                                           : region(buffer)});
        if (from && t.accesses.back().kind == AccessKind::Write)
          t.accesses.back().kind = AccessKind::MayWrite;
      }
      if (small_ && !t.accesses[0].region.from && below(3) == 0) {  // in place
        t.accesses.push_back(t.accesses[0]);
        t.accesses[0].kind = AccessKind::Read;
        t.accesses.back().kind = AccessKind::Write;
      }
    }
    p_.tasks.push_back(t);
  }

  /// A put to peers' slots, and the read there, with or without acknowledgement.
  void exchange() {
    const size_t slot = p_.buffers.size();
    Buffer b;
    b.name = "s" + std::to_string(slot);
    b.kind = BufferKind::Slot;
    b.dtype = DType::BF16;
    b.max_rows = p_.world;
    b.rows = Expr(b.max_rows);
    b.cols = 2 + below(3);
    b.packets = below(2) == 0;
    b.rotation = int64_t{1} << below(3);
    const int64_t shared = exchanges_++ > 0 && below(2) == 0 ? share_place(b) : 0;
    if (shared == 0) {
      b.offset = p_.symmetric_bytes;
      p_.symmetric_bytes += b.copy_bytes() * b.rotation;
    }
    p_.buffers.push_back(b);

    const auto shift = static_cast<int32_t>(1 + below(p_.world - 1));
    const bool ring = below(3) == 0;
    const RankRef to = ring ? RankRef::shift(shift) : RankRef::others();
    const RankRef from = ring ? RankRef::shift(-shift) : RankRef::others();
    const auto arrived = id_of<EventId>(p_.events.size());
    p_.events.push_back(
        {"arrived" + std::to_string(slot), b.packets ? EventKind::Packet : EventKind::Peer, 1});
    Task put, take;
    if (below(2) == 0)
      put.accesses.push_back({AccessKind::Read, region(static_cast<size_t>(below(private_)))});
    Region out{id_of<BufferId>(slot), b.cols, 0, 1, 0, b.cols, {.rows = ring ? 0 : 1}, to};
    put.accesses.push_back({AccessKind::MayWrite, out});
    put.signals.push_back({arrived, to});
    take.accesses.push_back(
        {AccessKind::Read,
         {id_of<BufferId>(slot), b.cols, 0, ring ? 1 : b.max_rows, 0, b.cols, {}, {}}});
    if (below(2) == 0)
      take.accesses.push_back({AccessKind::Write, region(static_cast<size_t>(below(private_)))});
    take.waits.push_back({arrived, from, 0});
    if (below(2) == 0) {
      const auto ack = id_of<EventId>(p_.events.size());
      p_.events.push_back({"ack" + std::to_string(slot), EventKind::Peer, 1});
      take.signals.push_back({ack, from});
      put.waits.push_back({ack, to, static_cast<uint32_t>(b.rotation)});
    }
    if (shared > 0 && below(2) == 0)
      for (const Signal& s : p_.tasks[static_cast<size_t>(shared - 1)].signals)
        put.waits.push_back({s.event, to, 0});
    if (small_ && below(3) == 0) {
      // Something else in a slot of its own, for the same event: packets don't bring it.
      const auto extra = id_of<BufferId>(p_.buffers.size());
      Buffer plain = b;
      plain.name += "x";
      plain.packets = false;
      plain.offset = p_.symmetric_bytes;
      p_.symmetric_bytes += plain.copy_bytes() * plain.rotation;
      p_.buffers.push_back(plain);
      const size_t writes = put.accesses.size() - 1;
      put.accesses.push_back(put.accesses[writes]);
      put.accesses.back().region.buffer = extra;
      Task* reader = below(2) == 0 ? &take : nullptr;
      if (!reader)
        for (Task& t : p_.tasks)
          if (&t != &p_.tasks.front()) reader = &t;
      if (!reader) reader = &take;
      reader->accesses.push_back({AccessKind::Read, take.accesses[0].region});
      reader->accesses.back().region.buffer = extra;
    }
    const int64_t first = shared > 0 && below(4) > 0 ? shared : 1;
    const auto at = p_.tasks.begin() + first + below(size(p_.tasks) - first + 1);
    const auto put_at = p_.tasks.insert(at, put);
    p_.tasks.insert(put_at + 1 + below(p_.tasks.end() - put_at), take);
  }

  /// Puts `b` in the place of an earlier slot; 0, or the task after the one that reads that.
  int64_t share_place(Buffer& b) {
    for (size_t t = p_.tasks.size(); t-- > 0;)
      for (const Access& a : p_.tasks[t].accesses) {
        const Buffer& other = p_[a.region.buffer];
        if (other.kind != BufferKind::Slot || a.writes()) continue;
        const std::string name = b.name;
        b = other;
        b.name = name;
        if (b.packets)
          b.use = std::count_if(p_.buffers.begin(), p_.buffers.end(),
                                [&](const Buffer& x) { return x.offset == b.offset; });
        return static_cast<int64_t>(t) + 1;
      }
    return 0;
  }

  /// A local event for every two tasks that may conflict on a rank, unless their stream orders
  /// them.
  void sync() {
    for (size_t i = 0; i < p_.tasks.size(); ++i)
      for (size_t j = i + 1; j < p_.tasks.size(); ++j) {
        const bool after = !p_.tasks[j].after.empty() && p_.tasks[i].call == p_.tasks[j].after[0];
        if (p_.tasks[i].sm == p_.tasks[j].sm || !(after || conflict(p_.tasks[i], p_.tasks[j])))
          continue;
        const auto e = id_of<EventId>(p_.events.size());
        p_.events.push_back(
            {"e" + std::to_string(i) + "." + std::to_string(j), EventKind::Local, 1});
        p_.tasks[i].signals.push_back({e, {}});
        p_.tasks[j].waits.push_back({e, {}, 0});
      }
  }
  bool conflict(const Task& a, const Task& b) const {
    for (const Access& x : a.accesses)
      for (const Access& y : b.accesses) {
        const Buffer &bx = p_[x.region.buffer], &by = p_[y.region.buffer];
        const bool share =
            x.region.buffer == y.region.buffer ||
            (bx.kind == BufferKind::Temp && by.kind == BufferKind::Temp && bx.offset == by.offset);
        if (share && bx.kind != BufferKind::Slot && (x.writes() || y.writes())) return true;
      }
    return false;
  }

  std::mt19937 random_;
  Program p_;
  int64_t private_ = 0;
  static constexpr int64_t kMostHeight = 3, kMostFirst = 2;
  bool small_ = false, heights_ = false;
  int64_t exchanges_ = 0;  // so far
};

}  // namespace maco::test
