#include "tests/proofs/mutations.h"

#include <fmt/format.h>

#include <algorithm>

namespace maco::proofs {
namespace {

using ir::EventId;
using ir::EventKind;
using ir::Program;
using ir::RankRef;
using ir::Task;

template <class T>
void erase_at(std::vector<T>& list, size_t i) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
}

class Mutations {
 public:
  explicit Mutations(const Program& p) : p_(p) {}

  std::vector<Mutation> run(Kind kind) {
    switch (kind) {
      case Kind::DropWait: waits(kind); break;
      case Kind::DropBoth: waits(kind); break;
      case Kind::RelaxWait: waits(kind); break;
      case Kind::DropSignal: signals(kind); break;
      case Kind::RelaxSignal: signals(kind); break;
      case Kind::NarrowScope: scopes(); break;
      case Kind::SwapTasks: swaps(); break;
      case Kind::LowerCount: counts(~0u); break;
      case Kind::RaiseCount: counts(1); break;
      case Kind::MoveTask: moves(); break;
      case Kind::ShrinkBuffer: shrink(); break;
      case Kind::AliasBuffers: alias(); break;
      case Kind::SkipChunk: skip(); break;
      case Kind::DoubleChunk: doubles(); break;
      case Kind::MisplaceChunk: misplace(); break;
      case Kind::ReuseEarly:
        reuse();
        same_flags();
        break;
      case Kind::Promise: promise(); break;
      case Kind::Load: loads(); break;
    }
    return std::move(list_);
  }

 private:
  void add(std::string what, std::function<void(Program&)> apply, bool touches_same = true) {
    list_.push_back({std::move(what), std::move(apply), touches_same});
  }
  std::string text(size_t task) const { return describe(p_, ir::id_of<ir::TaskId>(task)); }
  size_t waiters(EventId e) const {
    size_t n = 0;
    for (const Task& t : p_.tasks)
      n += static_cast<size_t>(std::count_if(t.waits.begin(), t.waits.end(),
                                             [&](const ir::Wait& w) { return w.event == e; }));
    return n;
  }

  // --- events ---

  void waits(Kind kind) {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (size_t w = 0; w < p_.tasks[t].waits.size(); ++w) {
        const EventId e = p_.tasks[t].waits[w].event;
        const std::string what = fmt::format(
            "{} {} for '{}'", text(t),
            kind == Kind::RelaxWait ? "waits without an acquire" : "no more waits", p_[e].name);
        if (kind == Kind::RelaxWait) {
          add(what, [=](Program& p) { p.tasks[t].waits[w].relaxed = true; });
        } else if (kind == Kind::DropWait) {
          add(what, [=](Program& p) { erase_at(p.tasks[t].waits, w); });
        } else if (waiters(e) == 1) {
          add(what + ", which nobody signals", [=](Program& p) {
            erase_at(p.tasks[t].waits, w);
            for (Task& x : p.tasks)
              std::erase_if(x.signals, [&](const ir::Signal& s) { return s.event == e; });
            if (is_counter(p[e].kind)) p[e].count = 0;
          });
        }
      }
  }
  void signals(Kind kind) {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (size_t s = 0; s < p_.tasks[t].signals.size(); ++s) {
        const EventId e = p_.tasks[t].signals[s].event;
        if (kind == Kind::RelaxSignal) {
          add(fmt::format("{} signals '{}' without a release", text(t), p_[e].name),
              [=](Program& p) { p.tasks[t].signals[s].relaxed = true; });
          continue;
        }
        add(fmt::format("{} doesn't signal '{}'", text(t), p_[e].name),
            [=](Program& p) { erase_at(p.tasks[t].signals, s); });
        if (is_counter(p_[e].kind))
          add(fmt::format("{} doesn't signal '{}', which counts one less", text(t), p_[e].name),
              [=](Program& p) {
                erase_at(p.tasks[t].signals, s);
                --p[e].count;
              });
      }
  }
  void scopes() {
    for (size_t e = 0; e < p_.events.size(); ++e)
      if (!is_counter(p_.events[e].kind))
        add(fmt::format("'{}' at gpu scope", p_.events[e].name),
            [=](Program& p) { p.events[e].scope = ir::Scope::Gpu; });
  }
  void counts(uint32_t by) {
    for (size_t e = 0; e < p_.events.size(); ++e)
      if (is_counter(p_.events[e].kind))
        add(fmt::format("'{}' counts to {}", p_.events[e].name, p_.events[e].count + by),
            [=](Program& p) { p.events[e].count += by; });
  }

  // --- streams ---

  void swaps() {
    const auto streams = ir::streams(p_);
    for (const auto& stream : streams)
      for (size_t step : {size_t{1}, size_t{3}})
        for (size_t i = 0; i + step < stream.size(); ++i) {
          const auto a = stream[i], b = stream[i + step];
          add(fmt::format("{} and {} change places", describe(p_, a), describe(p_, b)),
              [=](Program& p) { std::swap(p[a].place, p[b].place); });
        }
  }
  static void close_up(Program& p, int32_t sm, int32_t place) {
    for (Task& t : p.tasks)
      if (t.sm == sm && t.place > place) --t.place;
  }
  void moves() {
    const auto streams = ir::streams(p_);
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      const Task& task = p_.tasks[t];
      for (const ir::CtaRange& range : p_.roles) {
        const auto& kind = p_[task.call].op_kind;
        if (range.role != task.role || range.end - range.begin < 1 ||
            (!range.ops.empty() && std::count(range.ops.begin(), range.ops.end(), kind) == 0))
          continue;
        // The next CTA of the role: to its end, and to its middle.
        const int32_t to =
            task.sm >= range.begin && task.sm + 1 < range.end ? task.sm + 1 : range.begin;
        if (to == task.sm) continue;
        const auto end = static_cast<int32_t>(streams[static_cast<size_t>(to)].size());
        for (int32_t place : {end, end / 2, 0}) {
          if (place == end / 2 && place == 0) continue;
          add(fmt::format("{} moves to place {} of CTA {}", text(t), place, to), [=](Program& p) {
            Task& x = p.tasks[t];
            close_up(p, x.sm, x.place);
            for (Task& other : p.tasks)
              if (other.sm == to && other.place >= place) ++other.place;
            x.sm = to;
            x.place = place;
          });
        }
      }
    }
  }

  // --- memory ---

  void shrink() {
    for (size_t b = 0; b < p_.buffers.size(); ++b) {
      if (p_.buffers[b].max_rows > 1)
        add(
            fmt::format("'{}' has a row less", p_.buffers[b].name),
            [=](Program& p) { --p.buffers[b].max_rows; }, false);
      if (p_.buffers[b].cols > 1)
        add(
            fmt::format("'{}' has a column less", p_.buffers[b].name),
            [=](Program& p) { --p.buffers[b].cols; }, false);
    }
    if (p_.arena_bytes > 0) add("the arena is smaller", [](Program& p) { p.arena_bytes -= 256; });
    if (p_.symmetric_bytes > 0)
      add("symmetric memory is smaller", [](Program& p) { p.symmetric_bytes -= 256; });
  }
  void alias() {
    for (size_t a = 0; a < p_.buffers.size(); ++a)
      for (size_t b = 0; b < p_.buffers.size(); ++b) {
        const ir::Buffer &x = p_.buffers[a], &y = p_.buffers[b];
        if (a == b || x.kind != y.kind || !x.offset || x.offset == y.offset ||
            *y.offset + x.copy_bytes() * x.rotation >
                (x.kind == ir::BufferKind::Temp ? p_.arena_bytes : p_.symmetric_bytes))
          continue;
        add(
            fmt::format("'{}' lies where '{}' does", x.name, y.name),
            [=](Program& p) { p.buffers[a].offset = p.buffers[b].offset; }, false);
        if (x.packets && y.packets)
          add(
              fmt::format("'{}' lies where '{}' does, with other flags", x.name, y.name),
              [=](Program& p) {
                p.buffers[a].use = p.packet_uses();
                p.buffers[a].offset = p.buffers[b].offset;
              },
              false);
      }
  }
  void same_flags() {
    for (size_t b = 0; b < p_.buffers.size(); ++b)
      if (p_.buffers[b].use > 0)
        add(
            fmt::format("'{}' has the flags of another in its place", p_.buffers[b].name),
            [=](Program& p) { --p.buffers[b].use; }, false);
  }
  void reuse() {
    for (size_t b = 0; b < p_.buffers.size(); ++b)
      if (p_.buffers[b].rotation > 1)
        add(
            fmt::format("'{}' has a copy less", p_.buffers[b].name),
            [=](Program& p) { --p.buffers[b].rotation; }, false);
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (size_t w = 0; w < p_.tasks[t].waits.size(); ++w)
        if (p_.tasks[t].waits[w].lag > 0 || p_[p_.tasks[t].waits[w].event].kind != EventKind::Local)
          add(fmt::format("{} waits for '{}' of a launch before", text(t),
                          p_[p_.tasks[t].waits[w].event].name),
              [=](Program& p) { ++p.tasks[t].waits[w].lag; });
  }

  // --- collectives ---

  bool moves_chunks(size_t task) const {
    const std::string& f = p_[p_.tasks[task].call].function;
    return f == "put" || f == "combine" || f == "combine_finished" || f == "take" || f == "hop";
  }
  static void remove(Program& p, size_t t, bool consistent) {
    const Task gone = p.tasks[t];
    close_up(p, gone.sm, gone.place);
    erase_at(p.tasks, t);
    for (const ir::Signal& s : gone.signals)
      if (is_counter(p[s.event].kind)) --p[s.event].count;
    if (!consistent) return;
    for (size_t i = 0; i < p.events.size(); ++i) {
      const auto e = ir::id_of<EventId>(i);
      bool signalled = false, waited = false;
      for (const Task& x : p.tasks) {
        for (const ir::Signal& s : x.signals) signalled = signalled || s.event == e;
        for (const ir::Wait& w : x.waits) waited = waited || w.event == e;
      }
      if (signalled && waited) continue;
      for (Task& x : p.tasks) {
        std::erase_if(x.waits, [&](const ir::Wait& w) { return w.event == e; });
        if (!is_counter(p.events[i].kind))
          std::erase_if(x.signals, [&](const ir::Signal& s) { return s.event == e; });
      }
      if (is_counter(p.events[i].kind) && !signalled) p.events[i].count = 0;
    }
  }
  void skip() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      if (!moves_chunks(t)) continue;
      add(text(t) + " is left out", [=](Program& p) { remove(p, t, false); }, false);
      add(
          text(t) + " is left out, with all that waits for it",
          [=](Program& p) { remove(p, t, true); }, false);
      const auto rank = static_cast<int>(t % static_cast<size_t>(p_.world));
      if (p_.world > 1 && (p_.tasks[t].ranks >> rank & 1))
        add(
            fmt::format("{} is left out on rank {}", text(t), rank),
            [=](Program& p) { p.tasks[t].ranks &= ~(uint64_t{1} << rank); }, false);
    }
  }
  void doubles() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      if (!moves_chunks(t)) continue;
      // The next task of the call.
      for (size_t u = t + 1; u < p_.tasks.size(); ++u) {
        if (p_.tasks[u].call != p_.tasks[t].call) continue;
        add(fmt::format("{} takes the number of {}", text(u), text(t)),
            [=](Program& p) { p.tasks[u].tile = p.tasks[t].tile; });
        add(
            fmt::format("{} does what {} does", text(u), text(t)),
            [=](Program& p) {
              p.tasks[u].tile = p.tasks[t].tile;
              p.tasks[u].accesses = p.tasks[t].accesses;
            },
            false);
        break;
      }
    }
  }
  static RankRef next(RankRef r, int world) {
    switch (r.kind) {
      case RankRef::Kind::Self: return RankRef::shift(1);
      case RankRef::Kind::Others: return RankRef::shift(1);
      case RankRef::Kind::All: return RankRef::others();
      case RankRef::Kind::Rank: return RankRef::rank((r.n + 1) % world);
      case RankRef::Kind::Shift: break;
    }
    return RankRef::shift(r.n + 1);
  }
  void misplace() {
    const int world = static_cast<int>(p_.world);
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      if (!moves_chunks(t)) continue;
      for (size_t a = 0; a < p_.tasks[t].accesses.size(); ++a) {
        const ir::Region& r = p_.tasks[t].accesses[a].region;
        const ir::Buffer& b = p_[r.buffer];
        const std::string what = fmt::format("{} declares '{}' ", text(t), b.name);
        if (r.from)
          add(
              what + "from row 0", [=](Program& p) { p.tasks[t].accesses[a].region.from.reset(); },
              false);
        if (b.kind == ir::BufferKind::Slot) {
          if (const int64_t width = r.c1 - r.c0; r.c1 + width <= r.pitch)
            add(
                what + "a place further",
                [=](Program& p) {
                  ir::Region& x = p.tasks[t].accesses[a].region;
                  x.c0 += width, x.c1 += width;
                },
                false);
          if (world > 1 && p_.tasks[t].accesses[a].writes())
            add(
                what + "on another rank",
                [=](Program& p) {
                  ir::Region& x = p.tasks[t].accesses[a].region;
                  x.where = next(x.where, world);
                },
                false);
          if (r.block.any())
            add(
                what + "in row 0", [=](Program& p) { p.tasks[t].accesses[a].region.block = {}; },
                false);
        } else if (r.r0 > 0) {
          add(
              what + "a row before",
              [=](Program& p) {
                ir::Region& x = p.tasks[t].accesses[a].region;
                --x.r0, --x.r1;
              },
              false);
        }
      }
      for (size_t s = 0; s < p_.tasks[t].signals.size(); ++s)
        if (!is_counter(p_[p_.tasks[t].signals[s].event].kind) && world > 1)
          add(text(t) + " signals another rank", [=](Program& p) {
            ir::Signal& x = p.tasks[t].signals[s];
            x.to = next(x.to, world);
          });
    }
    for (size_t c = 0; c < p_.calls.size(); ++c)
      for (size_t i = 0; i < p_.calls[c].transfers.size(); ++i) misplace_transfer(c, i);
  }
  void misplace_transfer(size_t c, size_t i) {
    const ir::Transfer& x = p_.calls[c].transfers[i];
    const auto change = [&](const char* what, std::function<void(ir::Transfer&)> apply) {
      add(fmt::format("{} of '{}' {}", p_.calls[c].function, p_.calls[c].op, what),
          [=](Program& p) { apply(p.calls[c].transfers[i]); });
    };
    add(fmt::format("{} of '{}' moves nothing", p_.calls[c].function, p_.calls[c].op),
        [=](Program& p) { p.calls[c].transfers.clear(); });
    change("moves what it wrote", [](ir::Transfer& t) { t.from = {t.to[0]}; });
    if (x.to.size() > 1)
      change("moves to one place less", [](ir::Transfer& t) { t.to.pop_back(); });
    if (x.kind == ir::Transfer::Kind::Clear) {
      change("copies what it clears", [](ir::Transfer& t) {
        t.kind = ir::Transfer::Kind::Copy;
        t.from = t.to;
      });
      return;
    }
    if (x.kind == ir::Transfer::Kind::Copy) {
      change("clears", [](ir::Transfer& t) {
        t.kind = ir::Transfer::Kind::Clear;
        t.from.clear();
      });
      change("reduces", [](ir::Transfer& t) { t.kind = ir::Transfer::Kind::Reduce; });
      return;
    }
    change("copies", [](ir::Transfer& t) { t.kind = ir::Transfer::Kind::Copy; });
    change("copies its own", [](ir::Transfer& t) {
      t.kind = ir::Transfer::Kind::Copy;
      t.from.resize(1);
    });
    change("leaves one out", [](ir::Transfer& t) { t.from.erase(t.from.begin()); });
    change("adds one twice", [](ir::Transfer& t) { t.from.push_back(t.from[0]); });
    change("reduces otherwise", [](ir::Transfer& t) {
      t.reduce = static_cast<ir::Reduction>((static_cast<int>(t.reduce) + 1) % 4);
    });
  }
  void promise() {
    for (size_t i = 0; i < p_.collectives.size(); ++i) {
      const ir::Collective& c = p_.collectives[i];
      if (c.kind == ir::CollectiveKind::Barrier) continue;
      for (size_t k = 0; k < ir::kCollectiveKinds; ++k)
        if (const auto kind = static_cast<ir::CollectiveKind>(k);
            kind != c.kind && kind != ir::CollectiveKind::Barrier)
          add(fmt::format("'{}' promises another collective", c.op),
              [=](Program& p) { p.collectives[i].kind = kind; });
      add(fmt::format("'{}' promises another peer", c.op),
          [=](Program& p) { p.collectives[i].peer = (c.peer + 1) % p.world; });
      add(fmt::format("'{}' promises another reduction", c.op), [=](Program& p) {
        p.collectives[i].reduce = static_cast<ir::Reduction>((static_cast<int>(c.reduce) + 1) % 4);
      });
      add(fmt::format("'{}' promises the other way round", c.op),
          [=](Program& p) { std::swap(p.collectives[i].in, p.collectives[i].out); });
      if (!c.of_some()) continue;
      add(fmt::format("'{}' promises nothing to a rank", c.op),
          [=](Program& p) { p.collectives[i].ranks &= p.collectives[i].ranks - 1; });
      add(fmt::format("'{}' promises to all ranks", c.op),
          [=](Program& p) { p.collectives[i].ranks = ~uint64_t{0}; });
      add(fmt::format("'{}' promises what another op sends", c.op),
          [=](Program& p) { p.collectives[i].sender = c.sender.empty() ? c.op : c.sender + "."; });
    }
  }

  // --- operands that come through pages ---

  void loads() {
    int64_t held = 0;
    for (size_t c = 0; c < p_.calls.size(); ++c)
      for (size_t i = 0; i < p_.calls[c].loads.size(); ++i) {
        load(c, i);
        held = std::max(held, p_.calls[c].loads[i].pages);
      }
    if (held == 0) return;
    const auto ring = [&](std::string what, int32_t pages, int64_t page_bytes) {
      add(std::move(what), [=](Program& p) {
        p.uses.pages = pages;
        p.uses.page_bytes = page_bytes;
      });
    };
    const ir::Resources& u = p_.uses;
    ring("there is no ring", 0, 0);
    ring("the ring has as many pages as a task holds", static_cast<int32_t>(held), u.page_bytes);
    ring("the ring has a page less", u.pages - 1, u.page_bytes);
    ring("pages are smaller", u.pages, u.page_bytes - 128);
    ring("pages don't begin on 128 bytes", u.pages, u.page_bytes - 64);
  }
  void load(size_t c, size_t i) {
    const ir::Call& call = p_.calls[c];
    const ir::Load& l = call.loads[i];
    const auto change = [&](const std::string& what, std::function<void(ir::Load&)> apply) {
      add(fmt::format("the load of '{}' by '{}' {}", p_[call.operands[l.operand]].name, call.op,
                      what),
          [=](Program& p) { apply(p.calls[c].loads[i]); });
    };
    change("goes through another ring", [](ir::Load& x) { ++x.ring; });
    change("holds all pages", [n = p_.uses.pages](ir::Load& x) { x.pages = n; });
    change("holds no page", [](ir::Load& x) { x.pages = 0; });
    change("fills more than a page",
           [n = p_.uses.page_bytes](ir::Load& x) { x.page_bytes = n + 128; });
    change("fills nothing", [](ir::Load& x) { x.page_bytes = 0; });
    change("is of no operand",
           [n = call.operands.size()](ir::Load& x) { x.operand = static_cast<uint32_t>(n); });
    if (l.ahead) change("comes behind the waits", [](ir::Load& x) { x.ahead = false; });
    for (uint32_t o = 0; o < call.operands.size(); ++o) {
      if (o == l.operand) continue;
      const std::string& name = p_[call.operands[o]].name;
      // A box of the one needn't be possible for the other.
      change(fmt::format("is of '{}', ahead of the waits", name), [=](ir::Load& x) {
        x.operand = o;
        x.box.reset();
        x.ahead = true;
      });
      change(fmt::format("is of '{}', behind the waits", name), [=](ir::Load& x) {
        x.operand = o;
        x.box.reset();
        x.ahead = false;
      });
      add(fmt::format("'{}' loads '{}' too, and holds all pages with both", call.op, name),
          [=](Program& p) {
            ir::Load more = p.calls[c].loads[i];
            more.operand = o;
            more.box.reset();
            more.ahead = false;
            more.pages = p.uses.pages - more.pages;
            p.calls[c].loads.push_back(more);
          });
    }
    if (!l.ahead) change("runs ahead of the waits", [](ir::Load& x) { x.ahead = true; });
    add(fmt::format("'{}' doesn't say that it loads", call.op),
        [=](Program& p) { erase_at(p.calls[c].loads, i); });
    for (size_t t = p_.tasks.size(); t-- > 0;)
      if (index(p_.tasks[t].call) == c) {
        add(
            text(t) + " doesn't declare to read what it loads",
            [=](Program& p) {
              const ir::BufferId loaded = p.calls[c].operands[p.calls[c].loads[i].operand];
              std::erase_if(p.tasks[t].accesses, [&](const ir::Access& a) {
                return !a.writes() && a.region.buffer == loaded;
              });
            },
            false);
        break;
      }
  }

  const Program& p_;
  std::vector<Mutation> list_;
};

}  // namespace

const char* name(Kind kind) {
  constexpr const char* names[] = {
      "drop wait",     "drop signal",   "drop both",   "relax wait",   "relax signal",
      "narrow scope",  "swap tasks",    "lower count", "raise count",  "move task",
      "shrink buffer", "alias buffers", "skip chunk",  "double chunk", "misplace chunk",
      "reuse early",   "promise",       "load"};
  return names[static_cast<int>(kind)];
}

std::vector<Mutation> mutations(const Program& program, Kind kind) {
  return Mutations(program).run(kind);
}

}  // namespace maco::proofs
