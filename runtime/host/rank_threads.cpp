#include "runtime/host/rank_threads.h"

#include <fmt/format.h>

#include <exception>

namespace maco::runtime {

RankThreads::RankThreads(int ranks) : ranks_(ranks), results_(static_cast<size_t>(ranks)) {
  try {
    for (int r = 0; r < ranks; ++r) threads_.emplace_back([this, r] { serve(r); });
  } catch (const std::exception& error) {  // of threads (std::system_error) or of memory
    status_ = Status::failure(
        fmt::format("{} ranks need a host thread each, but the system gave only {} ({}): raise the "
                    "limit ('ulimit -u')",
                    ranks, threads_.size(), error.what()));
  }
}

RankThreads::~RankThreads() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::serve(int rank) {
  uint64_t seen = 0;
  while (true) {
    const std::function<Status(int)>* step = nullptr;
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (generation_ == seen) return;
      seen = generation_;
      step = step_;
    }
    Status status = (*step)(rank);
    std::lock_guard lock(mutex_);
    results_[static_cast<size_t>(rank)] = std::move(status);
    if (--busy_ == 0) done_.notify_one();
  }
}

std::vector<Status> RankThreads::run(const std::function<Status(int)>& step,
                                     const std::function<void()>& tick,
                                     std::chrono::milliseconds period) {
  std::unique_lock lock(mutex_);
  step_ = &step;
  busy_ = ranks_;
  ++generation_;
  start_.notify_all();
  auto idle = [this] { return busy_ == 0; };
  while (tick ? !done_.wait_for(lock, period, idle) : (done_.wait(lock, idle), false)) {
    lock.unlock();
    tick();
    lock.lock();
  }
  return results_;
}

void RankThreads::meet() {
  const uint64_t ranks = static_cast<uint64_t>(ranks_);
  const uint64_t ticket = met_.fetch_add(1, std::memory_order_acq_rel);
  const uint64_t all = (ticket / ranks + 1) * ranks;
  // Spins, so that the ranks' launches begin within microseconds of each other.
  while (met_.load(std::memory_order_acquire) < all) std::this_thread::yield();
}

Status all_of(const std::vector<Status>& statuses) {
  std::string message;
  std::vector<std::string> said;
  bool ok = true;
  for (const Status& status : statuses) {
    if (status.ok) continue;
    ok = false;
    bool repeated = false;
    for (const std::string& s : said) repeated = repeated || s == status.message;
    if (repeated) continue;
    said.push_back(status.message);
    message += (message.empty() ? "" : "\n") + status.message;
  }
  return ok ? Status{} : Status::failure(message);
}

}  // namespace maco::runtime
