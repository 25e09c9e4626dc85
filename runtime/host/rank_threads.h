// One host thread for each rank.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/host/session.h"

namespace maco::runtime {

/// Threads that run the same step for all ranks at once. Used from one thread.
class RankThreads {
 public:
  explicit RankThreads(int ranks);
  /// A failure if the system gave fewer threads than ranks; then don't run anything.
  const Status& status() const { return status_; }
  /// Waits for the step in progress.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  /// Runs step(rank) on every rank's thread and waits for all; while it waits, calls `tick` every
  /// `period`. Returns each rank's status. `step` must end on every rank whatever happens on
  /// others.
  std::vector<Status> run(const std::function<Status(int)>& step,
                          const std::function<void()>& tick = {},
                          std::chrono::milliseconds period = std::chrono::milliseconds(250));
  /// Called inside a step by all ranks, even if one of them has failed: returns when all have
  /// called it.
  void meet();

 private:
  void serve(int rank);

  const int ranks_;
  Status status_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<Status(int)>* step_ = nullptr;
  uint64_t generation_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  std::vector<Status> results_;
  std::atomic<uint64_t> met_{0};
  std::vector<std::thread> threads_;
};

/// Ok, or the failures of all ranks: one line each, a common failure only once.
Status all_of(const std::vector<Status>& statuses);

}  // namespace maco::runtime
