#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/cpu/rank_zones.h"
#include "runtime/cpu/session_parts.h"
#include "runtime/host/outcome.h"
#include "runtime/host/symmetric.h"

namespace maco::runtime {

Status CpuSessionImpl::reset() {
  for (RankState& rank : ranks_) {
    CpuContexts context(1);
    context[0].rank = rank.launch.rank;
    context[0].memory = rank.ctas.empty() ? nullptr : rank.ctas[0];
    context[0].launch = &rank.launch;
    context[0].access = check_access;
    MACO_TRY(run_on_threads(*library_, library_->reset(index_), context, nullptr));
  }
  if (handed_) MACO_TRY(handed_->reset());
  launched_ = 0;
  needs_reset_ = false;
  // A peer's packets would be lost in slots that are reset after their arrival.
  return options_.group ? options_.group->meet() : Status{};
}

void CpuSessionImpl::watch(const std::atomic<bool>& ended, int wake) {
  constexpr int kPeriodMs = 20;
  while (!ended) {
    const int gone = options_.group->gone(kPeriodMs, wake);
    if (gone < 0) continue;
    return abort_all(gone);
  }
}

void CpuSessionImpl::abort_all(int by) const {
  const int64_t at =
      control_offset(manifest_.symmetric_bytes, manifest_.peer_events, manifest_.world);
  for (char* memory : symmetric_) {
    auto* control = reinterpret_cast<Control*>(memory + at);
    std::atomic_ref<u32>(control->abort).store(static_cast<u32>(by) + 1);
  }
}

void CpuSessionImpl::stop() {
  const std::lock_guard lock(stop_mutex_);
  if (!running_) return;
  stopped_by_caller_ = true;
  abort_all(static_cast<int>(manifest_.world));
}

bool CpuSessionImpl::set_running(bool running) {
  const std::lock_guard lock(stop_mutex_);
  running_ = running;
  return std::exchange(stopped_by_caller_, false);
}

bool CpuSessionImpl::stopped() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankState& rank) { return any_stopped(rank.reports); });
}

Status CpuSessionImpl::conclude(const LaunchValues& values, std::string story) {
  std::vector<Report> reports;
  for (const RankState& rank : ranks_) reports.push_back(cause_of(rank.reports));
  if (options_.group) {
    const Outcome mine{reports[0], slowest_us_, false, 0, std::move(story)};
    std::vector<Outcome> all;
    // Kernels end within the time-out; a process that has been stopped says nothing.
    if (const Status met = tell_outcome(mine, values, 2 * options_.timeout_ms + 5000, all, story);
        !met) {
      needs_reset_ = true;
      return met;
    }
    reports.clear();
    for (const Outcome& one : all) {
      reports.push_back(one.report);
      slowest_us_ = std::max(slowest_us_, one.us);
    }
  }
  if (any_stopped(reports) || (!story.empty() && options_.group)) needs_reset_ = true;
  return failure_of(reports, "", story);
}

std::string CpuSessionImpl::red_zone_here(const void* address) const {
  for (const RankState& rank : ranks_)
    if (std::string place = red_zone(manifest_, rank, address); !place.empty()) return place;
  return "";
}

bool CpuSessionImpl::take_damage(const RankState& rank) {
  const std::lock_guard lock(damage_mutex_);
  bool any = false;
  const auto look = [&](const RedZones& zones, const ZonePiece& piece, const FencedMemory*) {
    const std::optional<int64_t> at = zones.damage();
    if (!at) return;
    any = true;
    damage_ += fmt::format("{}rank {}: a kernel of a user's wrote {}", damage_.empty() ? "" : "\n",
                           rank.rank, place_in_red_zone(*at, piece, rank.rank));
    zones.mend();
  };
  visit_zones(manifest_, rank, look);
  return any;
}

void CpuSessionImpl::take_block_ends(const CpuContexts& contexts) {
  for (const CpuContext& context : contexts) {
    if (!context.blocks || context.blocks->end == BlockEnd::Done) continue;
    Report& report = at(context.rank).reports[static_cast<size_t>(context.cta)];
    if (report.kind == kWaitThreads) report.limit = static_cast<i64>(context.blocks->end);
    const BlockEnd end = context.blocks->end;
    if (end != BlockEnd::Segment && end != BlockEnd::Bus) continue;
    const std::string place = red_zone_here(context.blocks->address);
    damage_ += fmt::format("{}rank {}: it touched {}", damage_.empty() ? "" : "\n", context.rank,
                           place.empty() ? far_away(context.blocks->address) : place);
  }
}

}  // namespace maco::runtime
