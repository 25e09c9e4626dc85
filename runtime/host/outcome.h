// What a launch came to on a rank, as processes that run a rank each tell one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"

namespace maco::runtime {

struct Outcome {
  Report report{};  // the rank's, cause_of its CTAs'
  double us = 0;    // how long the launch took
  /// Whether launches are numbered in the rank's memory, and how many are left there.
  bool numbered = false;
  uint32_t left = 0;
  std::string story;  // what went wrong besides
};

/// The values of launches that run without their processes' waiting for each other, in short.
class EnqueuedValues {
 public:
  /// Those of one more launch; of what lies in memory the names.
  void add(const LaunchValues& values, const LaunchAddresses& addresses);
  /// Equal if those of all launches were, almost certainly otherwise not. Empty if there were none.
  LaunchValues all() const;

 private:
  int64_t launches_ = 0;
  uint64_t hash_ = 0;
};

/// all[r] is rank r's, and `story` what went wrong besides reports, on all ranks; `values`, of the
/// launch, must be the same everywhere.
Status exchange_outcomes(Group& group, const Outcome& mine, const LaunchValues& values,
                         uint64_t patience_ms, std::vector<Outcome>& all, std::string& story);

/// A failure if a rank is to be launched with other values than the others, or has failed (`mine`)
/// before that.
Status agree_on_values(Group& group, const LaunchValues& values, const Status& mine);

}  // namespace maco::runtime
