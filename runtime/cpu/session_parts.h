// The class behind make_cpu_session, with its methods by subject: opening, tensors and regions in
// session.cpp, launches in session_launch.cpp, what spoils or stops them and what follows in
// session_recovery.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/block_guard.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/handed.h"
#include "runtime/cpu/kernel_guard.h"
#include "runtime/cpu/rank_memory.h"
#include "runtime/cpu/session.h"
#include "runtime/cpu/shared_memory.h"

namespace maco::runtime {

class CpuSessionImpl final : public CpuSession {
 public:
  CpuSessionImpl(std::shared_ptr<CpuLibrary> library, size_t index, ir::Manifest manifest,
                 bool users_kernels, const SessionOptions& options,
                 std::unique_ptr<SharedMemory> shared);

  Status launch(const LaunchValues& values) override { return launch(values, {}); }
  Status bench(const LaunchValues& values, int launches, double& median_us) override;
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams, TensorPlaces places) override;
  Status wait() override { return std::exchange(enqueued_, Status{}); }
  Status ended(bool& all) override {
    all = true;
    return wait();
  }
  void stop() override;
  Status set_regions(const ir::Program& program, KernelGuard* guard) override;
  void set_guard(KernelGuard* guard) override { guard_ = guard; }
  std::vector<Traffic> traffic() const override {
    return checker_ ? checker_->traffic() : std::vector<Traffic>();
  }
  Status step(int launches, const LaunchValues& values, const std::function<void(int, int)>& before,
              const std::function<void(Stepper&)>& drive) override;
  std::vector<RankAddresses> addresses(const ir::Program& program) override;
  uint32_t first_epoch() const override { return epoch_; }

 protected:
  void* address_here(int rank, size_t tensor) const override {
    return at(rank).tensor_pointers[tensor];
  }
  Status bind_here(int rank, size_t tensor, void* memory) override;
  Status allocate_here(int rank, size_t tensor) override;
  Status write_here(int rank, size_t tensor, size_t offset, const void* data,
                    size_t bytes) override;
  Status read_here(int rank, size_t tensor, size_t offset, void* data, size_t bytes) override;
  Status stamps_here(std::vector<RankStamps>& ranks) override;
  std::string clock() const override { return "cpu"; }
  Status place_tensors() override;
  Status set_values_here(int rank, const LaunchValues& values,
                         const LaunchAddresses& addresses) override;

 private:
  RankState& at(int rank) { return ranks_[static_cast<size_t>(rank - here_.first)]; }
  const RankState& at(int rank) const { return ranks_[static_cast<size_t>(rank - here_.first)]; }

  // Launches.
  Status launch(const LaunchValues& values, const LaunchAddresses& addresses);
  // Tells the checker of accesses the values of the launch.
  void start_checker(const LaunchValues& values, const LaunchAddresses& addresses);
  // Makes launches number themselves, and find values in memory.
  void number(RankState& rank, const std::vector<LaunchVariable>& variables) const;
  Status run();
  Status run(CpuContexts& contexts);
  // Adds the contexts of a rank's launch; clears the CTAs' shared memory.
  void add_contexts(RankState& rank, const Launch& launch, CpuContexts& contexts) const;
  void clear_arena(RankState& rank) const;

  // What spoils or stops launches, and what follows.
  // Resets memory as if the launch before `epoch_` had ended everywhere.
  Status reset();
  // Tells all ranks' kernels to stop; 1 + `by` is the rank that caused it.
  void abort_all(int by) const;
  // While this rank's kernel runs, tells the ranks of the other processes if one of them is gone.
  void watch(const std::atomic<bool>& ended, int wake);
  // The launch's outcome on all ranks. `story`: what went wrong here besides reports.
  Status conclude(const LaunchValues& values, std::string story);
  // Returns whether `stop` was called since the last time.
  bool set_running(bool running);
  // Whether any rank of this process gave up.
  bool stopped() const;
  // Describes the address in the red zones of a rank of this process; "" if it is in none.
  std::string red_zone_here(const void* address) const;
  // Notes what was overwritten in a rank's red zones, and restores it. Returns whether anything
  // was.
  bool take_damage(const RankState& rank);
  // Collects what became of blocks that were given up, for the reports and in words.
  void take_block_ends(const CpuContexts& contexts);

  std::unique_ptr<SharedMemory> shared_;  // in a group
  std::shared_ptr<CpuLibrary> library_;
  const size_t index_;
  const bool users_kernels_;
  bool needs_reset_ = true;
  Status enqueued_;               // the first failure among enqueued launches
  std::vector<RankState> ranks_;  // that run here
  double slowest_us_ = 0;         // rank of the last launch
  std::vector<char*> symmetric_;
  std::unique_ptr<HandedOver> handed_;  // if the kernel hands anything over
  std::unique_ptr<AccessChecker> checker_;
  KernelGuard* guard_ = nullptr;
  std::mutex stop_mutex_;  // for the next two
  bool running_ = false, stopped_by_caller_ = false;
  std::mutex damage_mutex_;
  std::string damage_;  // one line for each
};

/// Reports a context's access to the check of accesses, if there is one.
void check_access(maco_cpu::RoleContext* context, const void* address, uint64_t bytes, bool writes);
/// The same for an access in a kernel of a user's, whose block is given up if it is wrong.
void check_touched(maco_cpu::RoleContext* context, const void* address, uint64_t bytes,
                   bool writes);

}  // namespace maco::runtime
