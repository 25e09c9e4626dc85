// A launch's outcome on a rank, which processes with a rank each tell one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"

namespace maco::runtime {

struct Outcome {
  Report report{};  // the rank's: cause_of its CTAs' reports
  double us = 0;    // how long the launch took
  /// Whether launches are numbered in the rank's memory, and how many are left there.
  bool numbered = false;
  uint32_t left = 0;
  std::string story;  // what else went wrong
};

/// A digest of the values of launches that run without their processes waiting for each other.
class EnqueuedValues {
 public:
  /// Adds the values of one more launch; for values in memory their names.
  void add(const LaunchValues& values, const LaunchAddresses& addresses);
  /// Equal if the values of all launches were equal, and almost certainly different otherwise.
  /// Empty if there were none.
  LaunchValues all() const;

 private:
  int64_t launches_ = 0;
  uint64_t hash_ = 0;
};

/// all[r] is rank r's outcome, and `story` what went wrong besides reports, on all ranks. The
/// launch's `values` must be the same everywhere.
Status exchange_outcomes(Group& group, const Outcome& mine, const LaunchValues& values,
                         uint64_t patience_ms, std::vector<Outcome>& all, std::string& story);

/// Fails if a rank is to be launched with other values than the other ranks, or has already failed
/// (`mine`).
Status agree_on_values(Group& group, const LaunchValues& values, const Status& mine);

}  // namespace maco::runtime
