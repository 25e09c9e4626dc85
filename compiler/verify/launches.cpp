#include "compiler/verify/launches.h"

#include "compiler/verify/ranks.h"
#include "ir/ranks.h"

namespace maco::verify {

using ir::EventKind;

LaunchOrder::LaunchOrder(const Model& model, const std::vector<uint32_t>& order,
                         const std::vector<bool>& asked)
    : model_(model), world_(ir::all_ranks(model.world)), number_(model.tasks(), kNone) {
  const auto across = [&](ir::EventId e) { return !is_counter(model.event(e).kind); };
  for (uint32_t t = 0; t < model.tasks(); ++t) {
    const ir::Task& task = model.program.tasks[t];
    bool kept = asked[t];
    for (const ir::Wait& w : task.waits) kept = kept || across(w.event);
    for (const ir::Signal& s : task.signals) kept = kept || across(s.event);
    if (kept) number_[t] = static_cast<uint32_t>(kept_++);
  }
  for (const Plane plane : {Plane::Strong, Plane::Weak}) {
    if (plane == Plane::Weak && !model.has_packets) continue;
    Ranks& ranks = plane == Plane::Strong ? strong_ : weak_;
    look_back(plane, order, ranks);
    look_ahead(plane, order, ranks);
  }
}

/// In a symmetric model: what is said of rank 0, of rank `by`.
uint64_t LaunchOrder::turned(uint64_t ranks, int by) const {
  if (by == 0) return ranks;
  return ((ranks << by) | (ranks >> (model_.world - by))) & world_;
}
uint64_t LaunchOrder::of(const std::vector<uint64_t>& sets, uint32_t task, int rank) const {
  return model_.symmetric ? turned(sets[at(task, 0)], rank) : sets[at(task, rank)];
}

bool LaunchOrder::counts(const ir::Event& event, uint32_t waiter, Plane plane) const {
  if (event.kind == EventKind::Hint) return false;
  return event.kind != EventKind::Packet || (plane == Plane::Weak && model_.surely_polls(waiter));
}

/// For each task, finds the ranks that have something before it.
void LaunchOrder::look_back(Plane plane, const std::vector<uint32_t>& order, Ranks& ranks) {
  const auto followed = static_cast<size_t>(model_.followed);
  ranks.before.assign(kept_ * followed, 0);
  ranks.ever.assign(followed, 0);
  std::vector<uint64_t> streams(followed * model_.streams.size());
  std::vector<uint64_t> events(followed * model_.program.events.size());
  for (const uint32_t t : order) {
    const ir::Task& task = model_.program.tasks[t];
    for (int r = 0; r < model_.followed; ++r) {
      uint64_t& stream = streams[model_.stream_of[t] * followed + static_cast<size_t>(r)];
      stream |= uint64_t{1} << r;
      for (const ir::Wait& w : task.waits) {
        const ir::Event& event = model_.event(w.event);
        if (!model_.runs(t, r) || w.lag > 0 || !counts(event, t, plane)) continue;
        if (event.kind == EventKind::Local) {
          stream |= events[index(w.event) * followed + static_cast<size_t>(r)];
          continue;
        }
        each_named(w.from, r, model_.world, [&](int source) {
          stream |= of(ranks.before, model_.signaller(w.event, source, r), source);
        });
      }
      for (const ir::Signal& s : task.signals)
        events[index(s.event) * followed + static_cast<size_t>(r)] |= stream;
      if (number_[t] != kNone) ranks.before[at(t, r)] = stream;
      ranks.ever[static_cast<size_t>(r)] |= stream;
    }
  }
}

/// On which ranks something follows each task.
void LaunchOrder::look_ahead(Plane plane, const std::vector<uint32_t>& order, Ranks& ranks) {
  const auto followed = static_cast<size_t>(model_.followed);
  ranks.after.assign(kept_ * followed, 0);
  std::vector<uint64_t> streams(followed * model_.streams.size());
  std::vector<uint64_t> events(followed * model_.program.events.size());
  for (size_t i = order.size(); i-- > 0;) {
    const uint32_t t = order[i];
    const ir::Task& task = model_.program.tasks[t];
    for (int r = 0; r < model_.followed; ++r) {
      uint64_t& stream = streams[model_.stream_of[t] * followed + static_cast<size_t>(r)];
      stream |= uint64_t{1} << r;
      for (const ir::Signal& s : task.signals) {
        if (model_.event(s.event).kind == EventKind::Hint) continue;
        if (model_.event(s.event).kind == EventKind::Local) {
          stream |= events[index(s.event) * followed + static_cast<size_t>(r)];
          continue;
        }
        if (!model_.runs(t, r)) continue;
        each_named(s.to, r, model_.world, [&](int to) {
          for (const Model::Waiter& w : model_.waiters[index(s.event)])
            if (w.lag == 0 && counts(model_.event(s.event), w.task, plane) &&
                model_.runs(w.task, to) && names(w.from, to, r, model_.world))
              stream |= of(ranks.after, w.task, to);
        });
      }
      if (model_.runs(t, r))
        for (const ir::Wait& w : task.waits)
          if (w.lag == 0 && model_.event(w.event).kind == EventKind::Local)
            events[index(w.event) * followed + static_cast<size_t>(r)] |= stream;
      if (number_[t] != kNone) ranks.after[at(t, r)] = stream;
    }
  }
}

bool LaunchOrder::precedes(Plane plane, uint32_t first, int first_rank, uint32_t second,
                           int second_rank, int launches) const {
  const Ranks& ranks = plane == Plane::Strong || !model_.has_packets ? strong_ : weak_;
  const uint64_t before = of(ranks.before, second, second_rank);
  uint64_t after = of(ranks.after, first, first_rank);
  for (;;) {
    if ((after & before) != 0) return true;
    if (--launches == 0) return false;
    // And whoever hears of one of them in the launch between.
    uint64_t more = after;
    for (int r = 0; r < model_.world; ++r) {
      const uint64_t ever =
          model_.symmetric ? turned(ranks.ever[0], r) : ranks.ever[static_cast<size_t>(r)];
      if ((ever & after) != 0) more |= uint64_t{1} << r;
    }
    if (more == after) return false;
    after = more;
  }
}

}  // namespace maco::verify
