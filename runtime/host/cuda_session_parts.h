// The class behind make_cuda_session, with its methods by subject: opening and tensors in
// cuda_session.cpp, launches in cuda_session_launch.cpp, launches that number themselves in
// cuda_session_numbered.cpp, ends of launches and what follows a failure in
// cuda_session_recovery.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/host/cuda_rank.h"
#include "runtime/host/device_session.h"
#include "runtime/host/rank_threads.h"

namespace maco::runtime {

class CudaSession final : public DeviceSession {
 public:
  CudaSession(std::unique_ptr<cuda::Driver> driver, ir::Manifest manifest,
              const SessionOptions& options)
      : DeviceSession(std::move(manifest), options),
        driver_(std::move(driver)),
        threads_(here_.count) {}
  ~CudaSession() override;

  /// Opens all ranks with the compiled kernel.
  Status prepare(const std::string& image);
  std::unique_ptr<TensorWriter> make_writer(size_t staging, Status& status) override;
  Status launch(const LaunchValues& values) override;
  Status bench(const LaunchValues& values, int launches, double& median_us) override;
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams, TensorPlaces places) override;
  Status wait() override;
  Status ended(bool& all) override;
  void stop() override {
    if (waiting_) stop_ = true;
  }

 protected:
  void* address_here(int rank, size_t tensor) const override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): device memory, never looked at here
    return reinterpret_cast<void*>(ranks_[static_cast<size_t>(rank - here_.first)]->tensor(tensor));
  }
  Status bind_here(int rank, size_t tensor, void* memory) override;
  Status allocate_here(int rank, size_t tensor) override;
  Status write_here(int rank, size_t tensor, size_t offset, const void* data,
                    size_t bytes) override;
  Status read_here(int rank, size_t tensor, size_t offset, void* data, size_t bytes) override;
  Status stamps_here(std::vector<RankStamps>& ranks) override;
  std::string clock() const override { return gpu_; }
  Status place_tensors() override;
  Status set_values_here(int rank, const LaunchValues& values,
                         const LaunchAddresses& addresses) override;

 private:
  using Clock = std::chrono::steady_clock;
  // How many launches, and collectives that they hand over, are enqueued before the first launch
  // may start. A stream holds about a thousand entries; each launch or collective takes four.
  static constexpr int kBatch = 64, kHandedBatch = 128;

  CudaRank& at(int rank) { return *ranks_[static_cast<size_t>(rank - here_.first)]; }
  // Runs the step on all ranks of this process at once.
  Status on_all(const std::function<Status(int)>& step) {
    return all_of(threads_.run([&](int i) { return step(here_.first + i); }));
  }
  // The same for a step that takes each rank a few microseconds: waking threads takes longer than
  // two of these. (NCCL may wait for all ranks at its first call.)
  Status soon_on_all(const std::function<Status(int)>& step) {
    constexpr size_t kFew = 2;
    if (ranks_.size() > kFew || !manifest_.handed.empty()) return on_all(step);
    std::vector<Status> statuses;
    for (size_t i = 0; i < ranks_.size(); ++i)
      statuses.push_back(step(here_.first + static_cast<int>(i)));
    return all_of(statuses);
  }
  // Runs the step on all ranks, in all processes.
  Status everywhere(const std::function<Status(int)>& step) { return agree(on_all(step)); }
  // Waits until everything on the ranks' GPUs has ended.
  Status synchronize() {
    return on_all([&](int r) { return at(r).synchronize(); });
  }

  // Opening.
  Status open_ranks();
  Status make_gate();
  Status join_nccl();
  Status have_communicators(bool& all);

  // Launches.
  // Announces `launches` more launches: resets counters if packets would get flags that earlier
  // launches left behind.
  Status count(int launches);
  Status run(int launches, bool timed);
  // Sets the values of launches that all processes are about to run; waits for earlier launches.
  Status ready(const LaunchValues& values, int launches);
  Status ready_to_enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                          TensorPlaces places, bool captured);
  // Whether the streams, one for each rank, are being captured: all or none.
  Status are_captured(std::span<void* const> streams, bool& captured);
  // Why collectives can't be handed over in such a launch.
  Status refuse_handed(bool captured, const LaunchAddresses& addresses) const;
  Status enqueue(int rank, int launches, bool timed);
  Status enqueue_handed(int rank, int launches);
  // How many launches may be enqueued before the first of them starts.
  int batch() const {
    const int handed = static_cast<int>(manifest_.handed.size());
    return handed == 0 ? kBatch : std::clamp(kHandedBatch / handed, 1, kBatch);
  }
  // The times of the last `count` launches, each the longest of all ranks in all processes.
  Status read_times(int count, std::vector<double>& times);

  // Launches that number themselves.
  // Makes launches number themselves in the ranks' memory from now on.
  Status number();
  // Resets counters if half of the allowed launches have run.
  Status renew();
  // Captured launches begin without a call here: tells them the tensors' current addresses, unless
  // a launch runs that was told before.
  Status place_for_graphs();

  // The end of launches.
  // Called before launches, and after them: combines the kernels' reports and the ranks'
  // `statuses`.
  void begin();
  Status conclude(std::vector<Status> statuses);
  // Adds what other processes' ranks say: `status`, and `reports` with one for each rank.
  Status conclude_all(Status& status, std::vector<Report>& reports);
  // For the ranks of this process.
  std::vector<Status> wait_for_last();
  bool any_report() const;
  void watch();
  // 1 + `by` is the rank that stopped; the world's size means the host.
  void abort_all(int by);
  void abort_all() { abort_all(static_cast<int>(manifest_.world)); }
  Status recover();
  Status reset();

  std::unique_ptr<cuda::Driver> driver_;
  std::string gpu_;                   // in a group: the UUID of this process's GPU
  RankThreads threads_;               // of this process's ranks
  std::shared_ptr<const Nccl> nccl_;  // if the kernel hands collectives over
  std::vector<std::shared_ptr<Communicator>> communicators_;  // kept while ranks join
  std::vector<std::unique_ptr<CudaRank>> ranks_;
  std::unique_ptr<SymmetricMemory> symmetric_;
  uint32_t* gate_ = nullptr;  // host memory, mapped: see CudaRank::enqueue_gate
  cuda::DevicePtr gate_address_ = 0;
  uint32_t gate_value_ = 0;
  bool opened_ = false;    // all ranks are ready
  bool enqueued_ = false;  // launches for which nobody has waited
  Status start_;           // of these: the failure of a rank that didn't start
  // In a group: all values of these launches; `wait` compares them with other processes'.
  EnqueuedValues given_;
  // Whether launches number themselves in the ranks' memory, since graphs contain launches that the
  // host doesn't see; `epoch_` and `launched_` don't count these.
  bool numbered_ = false;
  // In a group, at the last wait: whether any rank's launches are numbered, and the fewest that a
  // rank has left until a reset.
  bool any_numbered_ = false;
  uint32_t least_left_ = UINT32_MAX;

  // About the launch in progress.
  std::atomic<bool> failed_{false};   // a kernel did not start or faulted; its peers wait in vain
  std::atomic<bool> give_up_{false};  // nobody waits for kernels any more
  std::atomic<bool> waiting_{false}, stop_{false};  // `stop` is asked for
  Clock::time_point progress_, aborted_;
  bool aborting_ = false;
  std::string stopped_why_;  // not empty: why the host stopped the kernels
  std::vector<uint32_t> heartbeats_;
};

}  // namespace maco::runtime
