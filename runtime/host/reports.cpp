// reports.cpp: the reports of launches that stopped, in the graph's names.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "runtime/host/abi.h"
#include "runtime/host/block_end.h"
#include "runtime/host/launch_values.h"
#include "runtime/host/session.h"

namespace maco::runtime {
namespace {

using ir::Manifest;

std::string task(const Manifest& m, const Report& r) {
  if (r.call >= m.calls.size()) return fmt::format("task {} (call {})", r.place, r.call);
  const ir::ManifestCall& call = m.calls[r.call];
  return fmt::format("task '{}' ({}) tile {}", call.op, call.op_kind, r.tile);
}

std::string event(const std::vector<ir::ManifestEvents>& names, const char* kind, uint32_t id) {
  const std::optional<std::string> name = ir::event_name(names, int64_t{id});
  return name ? fmt::format("event '{}' ({} event {})", *name, kind, id)
              : fmt::format("{} event {}", kind, id);
}

// The op of the task in `r`. Packets from peers travel within it, packets of its own rank come to
// it.
std::string op(const Manifest& m, const Report& r) {
  return r.call < m.calls.size() ? fmt::format("'{}'", m.calls[r.call].op)
                                 : fmt::format("call {}", r.call);
}

std::string waited(uint64_t timeout_ms) {
  if (timeout_ms == 0) return "waited without progress";
  if (timeout_ms % 1000 == 0) return fmt::format("waited {} s without progress", timeout_ms / 1000);
  return fmt::format("waited {} ms without progress", timeout_ms);
}

std::string awaited(const Manifest& m, int rank, const Report& r) {
  switch (r.kind) {
    case kWaitLocal: return event(m.local_names, "local", r.event);
    case kWaitPeer:
      return fmt::format("rank {}'s {}", r.source, event(m.peer_names, "peer", r.event));
    case kWaitPacket:
      if (r.source == rank)
        return fmt::format("its rank's packets, operand {} of {}", r.event, op(m, r));
      return fmt::format("rank {}'s packets of {} (operand {})", r.source, op(m, r), r.event);
    case kWaitHanded: return fmt::format("{} to come back from NCCL", op(m, r));
    case kWaitMate: return "the other SM of its pair, which shares the tile";
    default: return "a page of shared memory between its loader and its consumers";
  }
}

// Whether `a` could be the cause of `b`. It can if it comes first: in an earlier launch (their
// numbers wrap), or in an earlier task of the Program, which numbers calls and their tiles in
// order.
bool explains(const Report& a, const Report& b) {
  const auto rank = [](const Report& r) {
    if (r.state != 2) return r.state == 0 ? 3 : 2;
    return r.kind == kBadIndex || r.kind == kWaitThreads ||
                   (r.kind >= kBadVariable && r.kind <= kSpent)
               ? 0
               : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) > 1) return false;
  if (a.epoch != b.epoch) return static_cast<int32_t>(a.epoch - b.epoch) < 0;
  return std::tie(a.call, a.tile) < std::tie(b.call, b.tile);
}

}  // namespace

std::string explain_report(const Manifest& m, int rank, const Report& r, uint64_t timeout_ms) {
  if (r.state == 0) return "";
  if (r.state != 2) return fmt::format("rank {}: stopped, but its report is not complete", rank);
  const std::string where = fmt::format("rank {}, SM {}", rank, r.cta);
  if (r.kind == kBadIndex)
    return fmt::format("rank {}: op {}: index {} is outside [0, {})", rank, op(m, r), r.index,
                       r.limit);
  if (r.kind == kWaitThreads)
    return fmt::format("rank {}: op {}: {}", rank, op(m, r),
                       describe(static_cast<BlockEnd>(r.limit), r.index, timeout_ms));
  if (r.kind == kBadVariable && variable_at(m, r.event))
    return fmt::format("rank {}: {}", rank, out_of_range(m, r.event, r.index));
  if (r.kind == kBadValue && r.event < m.values.size())
    return fmt::format("rank {}: {}", rank, wrong_value(m.values[r.event], r.index));
  if (r.kind == kSpent)
    return fmt::format(
        "rank {}: {} launches without a wait, and counters must be reset: launch again", rank,
        launches_between_resets(m));
  if ((r.kind < kWaitLocal || r.kind > kWaitPage) && r.kind != kWaitHanded && r.kind != kWaitMate)
    return fmt::format("{}: {} stopped for the unknown reason {}", where, task(m, r), r.kind);
  const std::string what =
      fmt::format("{}: expected {}, seen {}", awaited(m, rank, r), r.expected, r.seen);
  if (r.stopped_by == 0)
    return fmt::format("{}: {} {} for {}", where, task(m, r), waited(timeout_ms), what);
  const int64_t by = int64_t{r.stopped_by} - 1;
  return fmt::format("{}: stopped by {} while {} waited for {}", where,
                     by < m.world ? fmt::format("rank {}", by) : "the host", task(m, r), what);
}

namespace {

// The ranks with reports, causes first.
std::vector<size_t> by_cause(std::span<const Report> reports) {
  std::vector<size_t> ranks(reports.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  std::stable_sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) {
    if (explains(reports[a], reports[b])) return true;
    return !explains(reports[b], reports[a]) && reports[a].stopped_by == 0 &&
           reports[b].stopped_by != 0;
  });
  return ranks;
}

}  // namespace

std::optional<Stopped> first_stopped(const Manifest& m, std::span<const Report> reports) {
  if (reports.empty()) return std::nullopt;
  const size_t first = by_cause(reports).front();
  const Report& r = reports[first];
  if (r.state != 2) return std::nullopt;
  const int rank = static_cast<int>(first);
  if (r.kind == kBadIndex || r.kind == kWaitThreads || (r.kind >= kBadVariable && r.kind <= kSpent))
    return Stopped{rank, r.kind == kBadIndex || r.kind == kWaitThreads ? op(m, r) : "", "",
                   r.kind == kBadIndex ? r.limit : 0, r.index};
  return Stopped{rank, task(m, r), awaited(m, rank, r), int64_t{r.expected}, int64_t{r.seen}};
}

std::string explain_reports(const Manifest& m, std::span<const Report> reports,
                            uint64_t timeout_ms) {
  std::string out;
  for (size_t rank : by_cause(reports)) {
    const std::string line = explain_report(m, static_cast<int>(rank), reports[rank], timeout_ms);
    if (!line.empty()) out += (out.empty() ? "" : "\n") + line;
  }
  return out;
}

Report cause_of(std::span<const Report> ctas) {
  const auto first = std::min_element(ctas.begin(), ctas.end(), explains);
  if (first == ctas.end()) return {};
  Report cause = *first;
  // The first wait need not be the one whose deadline passed first, but time was up for all.
  const auto expired = [](const Report& r) { return r.state != 0 && r.stopped_by == 0; };
  if (std::any_of(ctas.begin(), ctas.end(), expired)) cause.stopped_by = 0;
  return cause;
}

bool any_stopped(std::span<const Report> reports) {
  return std::any_of(reports.begin(), reports.end(), [](const Report& r) { return r.state != 0; });
}

}  // namespace maco::runtime
