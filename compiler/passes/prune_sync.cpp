// prune_sync.cpp: removes waits that stream order or other waits already imply, on any ranks.
//
// A wait of task t for a local event is implied when every producer of the event happens before t
// without it. The pass walks the tasks in Program order, in which every dependency points forward,
// and keeps for each task a vector clock: of every stream of every rank, how many tasks are known
// to have ended. What peers signal counts as well: it tells what they had heard. Packets don't:
// they show their own data and nothing else. One launch is enough, since on a rank all of a launch
// precedes the next. Where all ranks do the same up to a rotation, the clocks are those of rank 0.
// A rank that skips a task waits for nothing there, so that the task passes on only what stream
// order gives; and of a producer that it skips it needs nothing. No pair of tasks loses its order:
// what happens before what stays as it was. Events that nobody waits for any more go, with their
// signals. The order of tasks stays.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

using Counts = std::vector<int32_t>;  // per CTA: number of tasks of its stream that have ended

void join(int32_t* a, const int32_t* b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = std::max(a[i], b[i]);
}

// What is known at a place of a stream.
struct Clock {
  Counts own;  // of its own rank
  // of each rank what peers told, one after another; changes seldom, so most clocks share it
  std::shared_ptr<const Counts> far;
};

void join(Clock& a, const Clock& b) {
  join(a.own.data(), b.own.data(), a.own.size());
  if (!b.far || a.far == b.far) return;
  int32_t less = 0, more = 0;  // negative if `a` knows less, or more, than `b` of some stream
  for (size_t i = 0; a.far && i < a.far->size(); ++i) {
    less |= (*a.far)[i] - (*b.far)[i];
    more |= (*b.far)[i] - (*a.far)[i];
  }
  if (!a.far || more >= 0) {
    a.far = b.far;
  } else if (less < 0) {
    auto both = std::make_shared<Counts>(*a.far);
    join(both->data(), b.far->data(), both->size());
    a.far = std::move(both);
  }
}

class Pruner {
 public:
  explicit Pruner(ir::Program& p)
      : p_(p),
        world_(static_cast<size_t>(p.world)),
        ctas_(static_cast<size_t>(p.ctas)),
        symmetric_(is_symmetric(p)),
        followed_(symmetric_ ? 1 : world_),
        signallers_(p.events.size()),
        waiters_(p.events.size(), 0),
        event_clocks_(p.events.size()),
        sent_(p.tasks.size()),
        streams_(followed_, std::vector<Clock>(ctas_, Clock{Counts(ctas_, 0), nullptr})) {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      for (const ir::Signal& s : p_.tasks[t].signals)
        signallers_[index(s.event)].push_back({t, s.to});
      for (const ir::Wait& w : p_.tasks[t].waits) waiters_[index(w.event)]++;
    }
  }

  int64_t run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      ir::Task& task = p_.tasks[t];
      const auto sm = static_cast<size_t>(task.sm);
      // Latest producers first: they are the most likely to imply the others.
      std::vector<ir::Wait> waits;
      std::vector<ir::Wait> locals;
      for (const ir::Wait& w : task.waits)
        (kind(w.event) == ir::EventKind::Local && w.lag == 0 ? locals : waits).push_back(w);
      std::stable_sort(locals.begin(), locals.end(), [&](const ir::Wait& a, const ir::Wait& b) {
        return last_producer(a.event) > last_producer(b.event);
      });
      const Clocks before = without_locals(task, waits);
      Clocks now = before;
      std::vector<ir::Wait> needed;
      for (const ir::Wait& w : locals) {
        if (implied(task, w, now)) continue;
        needed.push_back(w);
        hear(task, w, now);
      }
      // A wait that came first because of its latest producer may be implied by those that came
      // behind it.
      for (size_t i = 0; needed.size() > 1 && i < needed.size();) {
        Clocks others = before;
        for (size_t k = 0; k < needed.size(); ++k)
          if (k != i) hear(task, needed[k], others);
        if (implied(task, needed[i], others))
          needed.erase(needed.begin() + static_cast<std::ptrdiff_t>(i));
        else
          ++i;
      }
      removed_ += static_cast<int64_t>(locals.size() - needed.size());
      for (const ir::Wait& w : task.waits) release(w.event);
      waits.insert(waits.end(), needed.begin(), needed.end());
      task.waits = std::move(waits);
      for (size_t r = 0; r < followed_; ++r) {
        Clock& stream = streams_[r][sm];
        if (runs(task, r)) stream = std::move(now[r]);
        stream.own[sm] = task.place + 1;
      }
      for (const ir::Signal& s : task.signals) tell(t, s.event);
    }
    drop_unused();
    return removed_;
  }

 private:
  using Clocks = std::vector<Clock>;  // by rank; of rank 0 only where ranks do the same
  struct Signaller {
    size_t task;
    ir::RankRef to;
  };

  // Whether rotating the ranks maps what they do to itself.
  static bool is_symmetric(const ir::Program& p) {
    const uint64_t all = p.world == 64 ? ~uint64_t{0} : (uint64_t{1} << p.world) - 1;
    const auto names_one = [](ir::RankRef ref) { return ref.kind == ir::RankRef::Kind::Rank; };
    return std::none_of(p.tasks.begin(), p.tasks.end(), [&](const ir::Task& t) {
      return (t.ranks & all) != all ||
             std::any_of(t.waits.begin(), t.waits.end(),
                         [&](const ir::Wait& w) { return names_one(w.from); }) ||
             std::any_of(t.signals.begin(), t.signals.end(),
                         [&](const ir::Signal& s) { return names_one(s.to); });
    });
  }
  bool runs(const ir::Task& t, size_t rank) const { return (t.ranks >> rank) & 1; }
  ir::EventKind kind(ir::EventId e) const { return p_[e].kind; }
  size_t last_producer(ir::EventId e) const {
    return signallers_[index(e)].empty() ? 0 : signallers_[index(e)].back().task;
  }

  // What a task knows by stream order and from peers, on the ranks that run it.
  Clocks without_locals(const ir::Task& task, const std::vector<ir::Wait>& waits) const {
    Clocks now;
    for (size_t r = 0; r < followed_; ++r) {
      Clock& clock = now.emplace_back();
      if (!runs(task, r)) continue;
      clock = streams_[r][static_cast<size_t>(task.sm)];
      std::shared_ptr<Counts> far;
      for (const ir::Wait& w : waits) {
        // of this launch it tells nothing
        if (kind(w.event) != ir::EventKind::Peer || w.lag > 0) continue;
        for (int source : ir::resolve(w.from, static_cast<int>(r), static_cast<int>(p_.world))) {
          const Clock* sent = sent_to(w.event, static_cast<size_t>(source), static_cast<int>(r));
          if (!sent) continue;
          if (!far)
            far = clock.far ? std::make_shared<Counts>(*clock.far)
                            : std::make_shared<Counts>(world_ * ctas_, 0);
          receive(clock.own, *far, r, *sent, static_cast<size_t>(source));
        }
      }
      if (far) clock.far = std::move(far);
    }
    return now;
  }

  // What the one task told that signals the event from `source` to `rank`; null if that isn't
  // known.
  const Clock* sent_to(ir::EventId e, size_t source, int rank) const {
    const Clocks* found = nullptr;
    for (const auto& [q, to] : signallers_[index(e)]) {
      if (!runs(p_.tasks[q], source)) continue;
      const std::vector<int> told =
          ir::resolve(to, static_cast<int>(source), static_cast<int>(p_.world));
      if (!std::binary_search(told.begin(), told.end(), rank)) continue;
      if (found) return nullptr;
      found = &sent_[q];
    }
    return found && !found->empty() ? &(*found)[symmetric_ ? 0 : source] : nullptr;
  }
  // Where ranks do the same, what rank 0 calls x is x + source to the one that sent it.
  void receive(Counts& own, Counts& far, size_t rank, const Clock& sent, size_t source) const {
    for (size_t x = 0; x < world_; ++x) {
      const bool of_sender = x == (symmetric_ ? 0 : source);
      if (!of_sender && !sent.far) continue;
      const size_t y = symmetric_ ? (x + source) % world_ : x;
      join(y == rank ? own.data() : far.data() + y * ctas_,
           of_sender ? sent.own.data() : sent.far->data() + x * ctas_, ctas_);
    }
  }

  void hear(const ir::Task& task, const ir::Wait& w, Clocks& now) const {
    const Clocks& told = event_clocks_[index(w.event)];
    for (size_t r = 0; r < told.size(); ++r)
      if (runs(task, r)) join(now[r], told[r]);
  }
  bool implied(const ir::Task& task, const ir::Wait& w, const Clocks& now) const {
    for (const auto& [q, to] : signallers_[index(w.event)]) {
      const ir::Task& producer = p_.tasks[q];
      for (size_t r = 0; r < followed_; ++r)
        if (runs(task, r) && runs(producer, r) &&
            now[r].own[static_cast<size_t>(producer.sm)] <= producer.place)
          return false;
    }
    return true;
  }

  // Keeps what a task that has ended tells by a signal, for those who wait for it.
  void tell(size_t t, ir::EventId e) {
    if (waiters_[index(e)] == 0 || kind(e) == ir::EventKind::Packet) return;
    const bool local = kind(e) == ir::EventKind::Local;
    Clocks& clocks = local ? event_clocks_[index(e)] : sent_[t];
    const bool first = clocks.empty();
    for (size_t r = 0; r < followed_; ++r) {
      const Clock& now = streams_[r][static_cast<size_t>(p_.tasks[t].sm)];
      if (first)
        clocks.push_back(now);
      else
        join(clocks[r], now);
    }
  }
  void release(ir::EventId e) {
    if (--waiters_[index(e)] > 0) return;
    event_clocks_[index(e)] = {};
    if (kind(e) != ir::EventKind::Peer) return;
    for (const Signaller& s : signallers_[index(e)]) {
      const auto& signals = p_.tasks[s.task].signals;
      const auto awaited = [&](const ir::Signal& x) {
        return kind(x.event) == ir::EventKind::Peer && waiters_[index(x.event)] > 0;
      };
      if (std::none_of(signals.begin(), signals.end(), awaited)) sent_[s.task] = {};
    }
  }

  void drop_unused() {
    std::vector<bool> used(p_.events.size(), false);
    for (const ir::Task& t : p_.tasks)
      for (const ir::Wait& w : t.waits) used[index(w.event)] = true;
    std::vector<ir::EventId> renamed(p_.events.size());
    std::vector<ir::Event> kept;
    for (size_t e = 0; e < p_.events.size(); ++e) {
      renamed[e] = ir::id_of<ir::EventId>(kept.size());
      if (used[e]) kept.push_back(std::move(p_.events[e]));
    }
    p_.events = std::move(kept);
    for (ir::Task& t : p_.tasks) {
      std::erase_if(t.signals, [&](const ir::Signal& s) { return !used[index(s.event)]; });
      for (ir::Signal& s : t.signals) s.event = renamed[index(s.event)];
      for (ir::Wait& w : t.waits) w.event = renamed[index(w.event)];
    }
  }

  ir::Program& p_;
  const size_t world_, ctas_;
  const bool symmetric_;
  const size_t followed_;                           // ranks with clocks of their own
  std::vector<std::vector<Signaller>> signallers_;  // by event
  std::vector<int64_t> waiters_;                    // by event: waits to come
  // by local event: what all its signals told so far
  std::vector<Clocks> event_clocks_;
  std::vector<Clocks> sent_;                 // by task that signals peers
  std::vector<std::vector<Clock>> streams_;  // by rank and CTA
  int64_t removed_ = 0;
};

}  // namespace

bool prune_sync(ir::Program& program, Context& context) {
  context.statistics["waits pruned"] = Pruner(program).run();
  int64_t waits = 0, signals = 0;
  for (const ir::Task& t : program.tasks) {
    waits += static_cast<int64_t>(t.waits.size());
    signals += static_cast<int64_t>(t.signals.size());
  }
  context.statistics["waits"] = waits;
  context.statistics["signals"] = signals;
  context.statistics["events"] = static_cast<int64_t>(program.events.size());
  return true;
}

}  // namespace maco::passes
