#include "runtime/host/cuda_session_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace maco::runtime {

void CudaSession::begin() {
  failed_ = false;
  stop_ = false;
  waiting_ = true;
  aborting_ = false;
  stopped_why_.clear();
  progress_ = Clock::now();
  heartbeats_.assign(ranks_.size(), 0);
}

Status CudaSession::conclude(std::vector<Status> statuses) {
  waiting_ = false;
  // Captured launches may still run and report, but not for long.
  const bool unsettled = numbered_ && any_report() && all_of(statuses);
  if (Status settled = agree(unsettled ? synchronize() : Status{}); !settled) {
    if (!options_.group || !options_.group->broken()) return settled;
    const Status failed = lost(settled, cause_of(at(here_.first).reports()));
    dead_ = failed.message;
    return failed;
  }
  std::vector<Report> reports(static_cast<size_t>(manifest_.world));
  for (int r = here_.first; is_here(r); ++r)
    reports[static_cast<size_t>(r)] = cause_of(at(r).reports());
  if (!stopped_why_.empty()) statuses.insert(statuses.begin(), Status::failure(stopped_why_));
  Status status = all_of(statuses);
  if (options_.group) MACO_TRY(conclude_all(status, reports));
  status = failure_of(reports, status.message);
  if (status) return {};
  if (Status recovered = recover(); !recovered)
    dead_ = "nothing can be launched after this failure: " + status.message;
  return status;
}

Status CudaSession::conclude_all(Status& status, std::vector<Report>& reports) {
  Outcome mine{reports[static_cast<size_t>(here_.first)], 0, numbered_, UINT32_MAX, ""};
  if (numbered_)
    if (const Status read = at(here_.first).read_left(mine.left); !read && status) status = read;
  mine.story = status.message;
  std::vector<Outcome> all;
  std::string story;
  const Status met =
      tell_outcome(mine, std::exchange(given_, {}).all(), Group::kPatienceMs, all, story);
  if (!met) dead_ = met.message;
  MACO_TRY(met);
  any_numbered_ = false;
  least_left_ = UINT32_MAX;
  for (size_t r = 0; r < all.size(); ++r) {
    reports[r] = all[r].report;
    any_numbered_ = any_numbered_ || all[r].numbered;
    least_left_ = std::min(least_left_, all[r].left);
  }
  status = story.empty() ? Status{} : Status::failure(story);
  return {};
}

std::vector<Status> CudaSession::wait_for_last() {
  return threads_.run(
      [&](int i) {
        Status ended = at(here_.first + i).wait_for_last(give_up_);
        if (!ended) failed_ = true;
        return ended;
      },
      [this] { watch(); });
}

// After all ranks have left their kernels: resets counters, slots and reports.
Status CudaSession::recover() {
  Status ended;
  if (give_up_)
    ended = Status::failure("a kernel still runs");
  else
    ended = on_all([&](int r) { return at(r).settle(); });
  if (ended && numbered_) ended = synchronize();
  MACO_TRY(agree(ended));
  return reset();
}

// Called from time to time while kernels run. Kernels end by themselves after the time-out. This
// handles those that don't, and the peers of a kernel that couldn't start.
void CudaSession::watch() {
  const auto now = Clock::now();
  if (aborting_) {
    if (now - aborted_ > std::chrono::seconds(10)) give_up_ = true;
    return;
  }
  if (failed_) return abort_all();
  if (stop_) {
    stopped_why_ = kStoppedByCaller;
    return abort_all();
  }
  if (const int gone = options_.group ? options_.group->gone(0) : -1; gone >= 0)
    return abort_all(gone);
  const std::chrono::milliseconds timeout(options_.timeout_ms);
  if (now - progress_ < timeout) return;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    uint32_t heartbeat = 0;
    if (!ranks_[r]->read_heartbeat(heartbeat) || heartbeat == heartbeats_[r]) continue;
    heartbeats_[r] = heartbeat;
    progress_ = Clock::now();
  }
  if (now - progress_ <= 2 * timeout + std::chrono::seconds(5)) return;
  stopped_why_ =
      fmt::format("no rank made progress for {} ms, and the kernel did not stop by itself",
                  std::chrono::duration_cast<std::chrono::milliseconds>(now - progress_).count());
  abort_all();
}

void CudaSession::abort_all(int by) {
  aborting_ = true;
  aborted_ = Clock::now();
  for (auto& rank : ranks_) rank->write_abort(by);
}

Status CudaSession::reset() {
  launched_ = 0;
  MACO_TRY(everywhere([&](int r) { return at(r).reset(epoch_); }));
  return agree(numbered_ ? number() : Status{});
}

bool CudaSession::any_report() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return cause_of(rank->reports()).state != 0; });
}

}  // namespace maco::runtime
