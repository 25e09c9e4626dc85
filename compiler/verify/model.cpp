#include "compiler/verify/model.h"

#include <algorithm>

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
  const uint64_t world = p.world == 64 ? ~uint64_t{0} : (uint64_t{1} << p.world) - 1;
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

/// The first row of a tile and the least number of rows there may be; of a function that doesn't
/// cut rows 0 and 1.
struct Rows {
  int64_t BR = 0, across = 1, tiles = 0, least = 1;
  bool by_block = false;
};
Rows rows_of(const ir::Program& p, const ir::Call& call) {
  Rows r;
  for (const ir::Param& param : call.params) {
    if (const auto* n = std::get_if<int64_t>(&param.value)) {
      if (param.name == "BR") r.BR = *n;
      if (param.name == "across") r.across = *n;
      if (param.name == "T") r.tiles = *n;
      if (param.name == "mode") r.by_block = *n == 1;
    } else if (const auto* v = std::get_if<ir::ValueRef>(&param.value); v && param.name == "rows") {
      const auto* constant = std::get_if<int64_t>(&v->v);
      r.least = constant ? *constant : p.values[std::get<uint32_t>(v->v)].range.lo;
    }
  }
  if (r.across < 1) r.across = 1;
  return r;
}

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
    std::vector<Rows> rows;
    for (const ir::Call& c : p.calls) rows.push_back(rows_of(p, c));
    for (uint32_t t = 0; t < tasks(); ++t) {
      const Rows& r = rows[index(p.tasks[t].call)];
      const int64_t tile = r.by_block && r.tiles > 0 ? p.tasks[t].tile % r.tiles : p.tasks[t].tile;
      vacuous_[t] = tile / r.across * r.BR >= r.least;
    }
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
