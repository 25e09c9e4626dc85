#include "compiler/verify/model.h"

#include <algorithm>

#include "ir/ranks.h"

namespace maco::verify {
namespace {

using ir::EventKind;
using ir::RankRef;

template <class T, class Each>
Lists<T> collect(size_t lists, const Each& each) {
  Lists<T> result;
  result.begin.assign(lists + 1, 0);
  each([&](size_t list, const T&) { ++result.begin[list + 1]; });
  for (size_t i = 0; i < lists; ++i) result.begin[i + 1] += result.begin[i];
  result.items.resize(result.begin[lists]);
  std::vector<uint32_t> at(result.begin.begin(), result.begin.end() - 1);
  each([&](size_t list, const T& item) { result.items[at[list]++] = item; });
  return result;
}

bool is_symmetric(const ir::Program& p) {
  const uint64_t world = ir::all_ranks(p.world);
  for (const ir::Task& t : p.tasks) {
    if ((t.ranks & world) != world) return false;
    for (const ir::Access& a : t.accesses)
      if (a.region.where.kind == RankRef::Kind::Rank) return false;
    for (const ir::Wait& w : t.waits)
      if (w.from.kind == RankRef::Kind::Rank) return false;
    for (const ir::Signal& s : t.signals)
      if (s.to.kind == RankRef::Kind::Rank) return false;
  }
  return true;
}

/// The least number of rows of a region's block, or of its buffer.
class LeastRows {
 public:
  explicit LeastRows(const ir::Program& p) : p_(p) {
    for (const ir::Buffer& b : p.buffers) {
      int64_t& rows = of_buffer_.emplace_back(b.max_rows);
      if (b.rows.is_constant()) continue;
      rows = 0;
      for (const ir::Value& v : p.values)
        if (v.expr == b.rows) rows = v.range.lo;
    }
  }
  /// Whether a task that touches `r` may find no rows there.
  bool may_be_absent(const ir::Region& r) const {
    if (r.block.value) return r.r0 >= p_.values[*r.block.value].range.lo;
    const ir::Buffer& b = p_[r.buffer];
    if (b.rows.is_constant() || r.r1 <= r.r0 || r.c1 <= r.c0) return false;
    return r.r0 * r.pitch + r.c0 >= of_buffer_[index(r.buffer)] * b.cols;
  }

 private:
  const ir::Program& p_;
  std::vector<int64_t> of_buffer_;
};

}  // namespace

bool names(RankRef ref, int rank, int other, int world) {
  switch (ref.kind) {
    case RankRef::Kind::Self: return rank == other;
    case RankRef::Kind::Others: return rank != other;
    case RankRef::Kind::All: return true;
    case RankRef::Kind::Rank: return other == ref.n;
    case RankRef::Kind::Shift: break;
  }
  return (int64_t{rank} + ref.n - other) % world == 0;
}

Model::Model(const ir::Program& p, bool use_symmetry)
    : program(p), world(static_cast<int>(p.world)) {
  symmetric = use_symmetry && world > 1 && is_symmetric(p);
  followed = symmetric ? 1 : world;
  for (const ir::Buffer& b : p.buffers)
    if (b.kind == ir::BufferKind::Slot && world > 1)
      launches = std::max(launches, static_cast<int>(b.rotation) + 1);
  for (const ir::Event& e : p.events) has_packets = has_packets || e.kind == EventKind::Packet;

  stream_of.assign(tasks(), 0);
  for (const std::vector<ir::TaskId>& stream : ir::streams(p)) {
    if (stream.empty()) continue;
    std::vector<uint32_t>& list = streams.emplace_back();
    for (ir::TaskId t : stream) {
      list.push_back(static_cast<uint32_t>(index(t)));
      stream_of[index(t)] = static_cast<uint32_t>(streams.size() - 1);
    }
  }
  if (has_packets) {
    vacuous_.assign(tasks(), false);
    const LeastRows rows(p);
    for (uint32_t t = 0; t < tasks(); ++t)
      vacuous_[t] = std::any_of(p.tasks[t].accesses.begin(), p.tasks[t].accesses.end(),
                                [&](const ir::Access& a) { return rows.may_be_absent(a.region); });
  }
  signallers = collect<Signaller>(p.events.size(), [&](const auto& put) {
    for (uint32_t t = 0; t < tasks(); ++t)
      for (const ir::Signal& s : p.tasks[t].signals) put(index(s.event), {t, s.to});
  });
  waiters = collect<Waiter>(p.events.size(), [&](const auto& put) {
    for (uint32_t t = 0; t < tasks(); ++t)
      for (const ir::Wait& w : p.tasks[t].waits) put(index(w.event), {t, w.from, w.lag});
  });
}

uint32_t Model::signaller(ir::EventId e, int source, int rank) const {
  for (const Signaller& s : signallers[index(e)])
    if (runs(s.task, source) && names(s.to, source, rank, world)) return s.task;
  return ~0u;
}

}  // namespace maco::verify
