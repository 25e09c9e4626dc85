// What sessions on the CPU and on GPUs have in common: which ranks are here, how tensors get their
// memory and contents, what is checked before a launch, and how a failed launch is told.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/group.h"
#include "runtime/host/outcome.h"
#include "runtime/host/profile.h"
#include "runtime/host/session.h"

namespace maco::runtime {

/// Runs all ranks, or the rank of this process's in SessionOptions::group. Checks each call; a
/// target does the rest in the virtual methods below, which get ranks of this process only.
class DeviceSession : public Session {
 public:
  const ir::Manifest& manifest() const final { return manifest_; }
  RanksHere here() const final { return here_; }
  Status bind(int rank, size_t tensor, void* memory) final;
  Status allocate(int rank, size_t tensor) final;
  void* address(int rank, size_t tensor) const final {
    return here_.has(rank) ? address_here(rank, tensor) : nullptr;
  }
  Status write_at(int rank, size_t tensor, size_t offset, const void* data, size_t bytes) final;
  Status read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) final;
  Status stamps(std::vector<RankStamps>& ranks) final;

 protected:
  /// Keeps copies of both; the group, if there is one, must outlive the session.
  DeviceSession(ir::Manifest manifest, const SessionOptions& options);

  /// The tensor's address; null if it has none yet.
  virtual void* address_here(int rank, size_t tensor) const = 0;
  /// Places the tensor in checked memory of the caller's.
  virtual Status bind_here(int rank, size_t tensor, void* memory) = 0;
  /// Gives zeroed memory to a tensor that has none.
  virtual Status allocate_here(int rank, size_t tensor) = 0;
  /// Copies at least one byte, within a tensor that has memory.
  virtual Status write_here(int rank, size_t tensor, size_t offset, const void* data,
                            size_t bytes) = 0;
  virtual Status read_here(int rank, size_t tensor, size_t offset, void* data, size_t bytes) = 0;
  /// The stamps of this process's ranks. In a group it fails on all processes if it does on one.
  virtual Status stamps_here(std::vector<RankStamps>& ranks) = 0;
  /// A name that is equal for processes whose stamps use one clock.
  virtual std::string clock() const = 0;
  /// Tells the kernels where the tensors are, if that has changed.
  virtual Status place_tensors() = 0;
  /// Sets the values of the rank's next launches. Fails if a number is outside of its range.
  virtual Status set_values_here(int rank, const LaunchValues& values,
                                 const LaunchAddresses& addresses) = 0;

  /// Checks that a launch can have these values and this memory, and prepares all ranks for it.
  Status set_values(const LaunchValues& values, const LaunchAddresses& addresses = {},
                    TensorPlaces places = {});
  Status alive() const { return dead_.empty() ? Status{} : Status::failure(dead_); }
  /// A failure of any process is a failure of all.
  Status agree(const Status& mine) const {
    return options_.group ? options_.group->agree(mine) : mine;
  }
  /// In a group: tells all processes what became of a launch on this process's rank. If some
  /// process can't be asked any more, the failure says what the rank waited for.
  Status tell_outcome(const Outcome& mine, const LaunchValues& values, uint64_t patience_ms,
                      std::vector<Outcome>& all, std::string& story) const;
  /// The failure to meet the group, and what this process's rank waited for by its report.
  Status lost(const Status& met, const Report& report) const;
  /// A launch's failure: `ahead`, then the reports of all ranks in words, then `behind`. Ok if all
  /// of it is empty.
  Status failure_of(std::span<const Report> reports, const std::string& ahead,
                    const std::string& behind = {}) const;

  const ir::Manifest manifest_;
  const SessionOptions options_;
  const RanksHere here_;
  uint32_t epoch_;        // of the next launch
  int64_t launched_ = 0;  // since the last reset
  std::string dead_;      // not empty: why nothing can be launched any more

 private:
  Status check_here(int rank) const;
  Status check_copy(int rank, size_t tensor, size_t offset, size_t bytes) const;
};

}  // namespace maco::runtime
