// The accesses to each rank's memory are visited in the order of a launch, twice. The first pass
// compares them with those of the same launch, the second with those of the launch that used the
// copy before. All other pairs are ordered, because a launch follows the one before it on its rank.
//
// In a launch, accesses of two ranks are ordered where the later task waits for a signal of the
// earlier one, or has heard of it in another way: that is left to what follows the tasks' clocks.
#include "compiler/verify/slots.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "compiler/verify/flags.h"
#include "compiler/verify/history.h"
#include "compiler/verify/ranks.h"

namespace maco::verify {
namespace {

using ir::Access;
using ir::BufferKind;
using ir::EventKind;

class Slots {
 public:
  Slots(const Model& model, const Layout& layout, const std::vector<uint32_t>& order,
        std::vector<OwnOrder>& own, std::vector<FarOrder>& far, int64_t& pairs)
      : m_(model), p_(model.program), layout_(layout), own_(own), far_(far), pairs_(pairs) {
    for (const uint32_t t : order)
      for (uint32_t i = 0; i < p_.tasks[t].accesses.size(); ++i)
        if (p_[p_.tasks[t].accesses[i].region.buffer].kind == BufferKind::Slot)
          accesses_.push_back({t, i, 0});
    std::vector<bool> asked(m_.tasks(), false);
    for (const SlotAccess& a : accesses_) asked[a.task] = true;
    if (!accesses_.empty() && m_.launches > 1) launches_.emplace(m_, order, asked);
  }

  bool run() {
    if (accesses_.empty()) return true;
    if (copies_mix()) return false;
    std::vector<Box> boxes;
    for (SlotAccess& a : accesses_) {
      a.first_box = static_cast<uint32_t>(boxes.size());
      const ir::Region& r = access(a).region;
      for (int runner = 0; runner < (r.block.moves() ? m_.world : 1); ++runner)
        boxes.push_back(!r.block.moves() || m_.runs(a.task, runner) ? layout_.box(r, runner, 0)
                                                                    : Box{});
    }
    const BoxTable table(boxes, box_ids_);
    boxes = {};
    table_ = &table;
    const int memories = m_.symmetric && !turn_with_ranks() ? m_.world
                         : m_.symmetric                     ? 1
                                                            : m_.world;
    for (int memory = 0; memory < memories; ++memory) {
      History history(table);
      for (int launch = 0; launch < (m_.launches > 1 ? 2 : 1); ++launch)
        for (const SlotAccess& a : accesses_)
          if (!visit(a, memory, launch, history)) return false;
    }
    return true;
  }

 private:
  struct SlotAccess {
    uint32_t task, access;
    uint32_t first_box;  // index into box_ids_; by runner if it matters
  };
  const Access& access(const SlotAccess& a) const { return p_.tasks[a.task].accesses[a.access]; }
  int rotation_of(const Access& a) const { return static_cast<int>(p_[a.region.buffer].rotation); }

  /// Whether slots share bytes although their copies take turns in different ways.
  bool copies_mix() const {
    std::vector<const ir::Buffer*> slots;
    for (const ir::Buffer& b : p_.buffers)
      if (b.kind == BufferKind::Slot) slots.push_back(&b);
    std::sort(slots.begin(), slots.end(),
              [](const ir::Buffer* a, const ir::Buffer* b) { return *a->offset < *b->offset; });
    int64_t end = INT64_MIN;
    const ir::Buffer* last = nullptr;
    for (const ir::Buffer* b : slots) {
      const bool same = last && *last->offset == *b->offset && last->rotation == b->rotation &&
                        last->copy_bytes() == b->copy_bytes();
      if (*b->offset < end && !same) return true;
      end = *b->offset + b->copy_bytes() * b->rotation;
      last = b;
    }
    return false;
  }

  /// Symmetric: whether what ranks do to one rank's memory is what they do to any other's, some
  /// blocks further.
  bool turn_with_ranks() const {
    struct Blocks {
      int64_t rows = 0, pitch = 0;  // of a row: bytes
    };
    std::unordered_map<int64_t, Blocks> blocks;  // by place: slots may share one
    const auto bytes = [&](const ir::Region& r) { return r.pitch * size_of(p_[r.buffer].dtype); };
    for (const SlotAccess& a : accesses_)
      if (const ir::Region& r = access(a).region; r.block.moves())
        blocks[*p_[r.buffer].offset] = {r.block.rows, bytes(r)};
    for (const SlotAccess& a : accesses_) {
      const ir::Region& r = access(a).region;
      const Blocks& b = blocks[*p_[r.buffer].offset];
      if (b.pitch == 0) continue;
      const bool turns =
          bytes(r) == b.pitch &&
          (r.block.moves() ? r.block.rows == b.rows && b.rows > 0 && r.r0 >= 0 && r.r1 <= b.rows
                           : same_in_all_blocks(r, b.rows));
      if (!turns) return false;
    }
    return true;
  }
  /// Whether `r`, the same on every rank, touches the same rows of every block of `rows`.
  bool same_in_all_blocks(const ir::Region& r, int64_t rows) const {
    using enum ir::RankRef::Kind;
    if (!r.block.any()) return r.r0 == 0 && r.r1 == rows * m_.world;
    return r.block.rows == rows && (r.block.ref.kind == All || r.block.ref.kind == Others) &&
           r.r0 >= 0 && r.r1 <= rows;
  }

  bool visit(const SlotAccess& a, int memory, int launch, History& history) {
    const Access& what = access(a);
    const ir::RankRef where = what.region.where;
    // Who runs it, so that it is this memory.
    bool ok = true;
    const auto by = [&](int runner) {
      if (ok && m_.runs(a.task, runner)) ok = touch(a, what, runner, memory, launch, history);
    };
    if (where.kind == ir::RankRef::Kind::Rank) {
      if (where.n == memory)
        for (int runner = 0; runner < m_.world; ++runner) by(runner);
    } else if (where.kind == ir::RankRef::Kind::Shift) {
      each_named(ir::RankRef::shift(-where.n), memory, m_.world, by);
    } else {
      each_named(where, memory, m_.world, by);
    }
    return ok;
  }

  bool touch(const SlotAccess& a, const Access& what, int runner, int memory, int launch,
             History& history) {
    const uint32_t box =
        box_ids_[a.first_box + static_cast<uint32_t>(what.region.block.moves() ? runner : 0)];
    if ((*table_)[box].empty()) return true;
    const Past now{a.task,
                   a.access,
                   static_cast<uint32_t>(p_.tasks[a.task].place),
                   m_.stream_of[a.task],
                   static_cast<int16_t>(runner),
                   static_cast<int16_t>(launch),
                   what.writes(),
                   true,
                   0};
    bool ok = true;
    history.visit(box, now.writes, [&](uint32_t other, const Past& past) {
      if (past.task == now.task && past.runner == runner && past.launch == launch) return false;
      ++pairs_;
      ok = ok && ordered(past, now, memory);
      return now.writes && covers((*table_)[box], (*table_)[other]);
    });
    if (!ok) return false;
    if (now.writes) {
      history.add_write(box, now);
      return true;
    }
    history.add_read(box, now, [&](const Past& past) {
      return past.runner == now.runner && past.launch == now.launch &&
             ((past.stream == now.stream && past.number < now.number) ||
              comes_between(box, past, now));
    });
    return true;
  }

  bool ordered(const Past& past, const Past& now, int memory) {
    if (past.launch == now.launch) {
      // The second pass finds again what the first has found.
      if (now.launch > 0) return true;
      if (past.task >= now.task) return false;
      if (past.runner == now.runner) {
        own_.push_back({past.task, now.task, m_.symmetric ? 0 : now.runner});
        return true;
      }
      if (!is_told_apart(past, now, memory, 0)) far_order(past, now);
      return true;
    }
    const int rotation = rotation_of(p_.tasks[past.task].accesses[past.access]);
    return past.runner == now.runner || is_told_apart(past, now, memory, rotation) ||
           launches_->precedes(past.writes ? Plane::Strong : Plane::Weak, past.task, past.runner,
                               now.task, now.runner, rotation) ||
           acknowledged(past, now, rotation);
  }

  const ir::Region& region(const Past& past) const {
    return p_.tasks[past.task].accesses[past.access].region;
  }
  /// Whether the later of two reads in one place on a rank waits for a task that writes where the
  /// earlier one has read. That task has to come after the earlier read, so that whoever comes
  /// after the later read comes after both.
  bool comes_between(uint32_t box, const Past& past, const Past& now) const {
    const ir::BufferId from = region(past).buffer, to = region(now).buffer;
    if (from == to || p_[from].offset != p_[to].offset || past.task > now.task) return false;
    for (const ir::Wait& w : p_.tasks[now.task].waits) {
      if (w.lag > 0 || !counts(w.event, Plane::Weak, now.task)) continue;
      bool found = false;
      each_named(w.from, now.runner, m_.world, [&](int source) {
        const uint32_t writer = m_.signaller(w.event, source, now.runner);
        found = found || writes_there(writer, source, to, (*table_)[box]);
      });
      if (found) return true;
    }
    return false;
  }
  bool writes_there(uint32_t task, int runner, ir::BufferId slot, const Box& box) const {
    const std::vector<Access>& all = p_.tasks[task].accesses;
    return std::any_of(all.begin(), all.end(), [&](const Access& a) {
      return a.writes() && a.region.buffer == slot &&
             overlap(layout_.box(a.region, runner, 0), box);
    });
  }

  bool is_told_apart(const Past& past, const Past& now, int memory, int launches) const {
    return tells_apart(m_, {past.task, past.access, past.runner},
                       {now.task, now.access, now.runner}, memory, launches);
  }

  bool counts(ir::EventId e, Plane plane, uint32_t waiter) const {
    const EventKind kind = m_.event(e).kind;
    return kind == EventKind::Peer ||
           (kind == EventKind::Packet && plane == Plane::Weak && m_.surely_polls(waiter));
  }

  /// Whether `now` waits for what `past` or a task after it has signalled launches ago.
  bool acknowledged(const Past& past, const Past& now, int launches) {
    const Plane plane = past.writes ? Plane::Strong : Plane::Weak;
    for (const ir::Wait& w : p_.tasks[now.task].waits) {
      const int lag = static_cast<int>(w.lag);
      if (lag == 0 || lag > launches || !counts(w.event, plane, now.task) ||
          !names(w.from, now.runner, past.runner, m_.world))
        continue;
      const uint32_t by = m_.signaller(w.event, past.runner, now.runner);
      if (lag == launches && by < past.task) continue;
      if (lag == launches && by > past.task)
        own_.push_back({past.task, by, m_.symmetric ? 0 : past.runner});
      return true;
    }
    return false;
  }

  /// Unless `now` waits for `past` itself.
  void far_order(const Past& past, const Past& now) {
    FarOrder far{.plane = past.writes ? Plane::Strong : Plane::Weak,
                 .first = past.task,
                 .second = now.task,
                 .first_rank = past.runner,
                 .second_rank = now.runner};
    for (const ir::Wait& w : p_.tasks[far.second].waits) {
      if (w.lag > 0 || !counts(w.event, far.plane, far.second) ||
          !names(w.from, far.second_rank, far.first_rank, m_.world))
        continue;
      const uint32_t by = m_.signaller(w.event, far.first_rank, far.second_rank);
      if (by == far.first) return;
      if (by > far.first) far.said_by = by;
    }
    for (const ir::Signal& s : p_.tasks[far.first].signals) {
      if (!names(s.to, far.first_rank, far.second_rank, m_.world)) continue;
      for (const Model::Waiter& w : m_.waiters[index(s.event)])
        if (w.lag == 0 && w.task < std::min(far.second, far.heard_by) &&
            counts(s.event, far.plane, w.task) && m_.runs(w.task, far.second_rank) &&
            names(w.from, far.second_rank, far.first_rank, m_.world))
          far.heard_by = w.task;
    }
    far_.push_back(far);
  }

  const Model& m_;
  const ir::Program& p_;
  const Layout& layout_;
  std::vector<OwnOrder>& own_;
  std::vector<FarOrder>& far_;
  int64_t& pairs_;
  std::vector<SlotAccess> accesses_;
  std::vector<uint32_t> box_ids_;
  const BoxTable* table_ = nullptr;
  std::optional<LaunchOrder> launches_;
};

}  // namespace

bool slots_are_ordered(const Model& model, const Layout& layout, const std::vector<uint32_t>& order,
                       std::vector<OwnOrder>& own, std::vector<FarOrder>& far, int64_t& pairs) {
  return Slots(model, layout, order, own, far, pairs).run();
}

}  // namespace maco::verify
