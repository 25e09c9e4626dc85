// Where a launch's time went, op by op.
#pragma once

#include <string>
#include <vector>

#include "runtime/profile/timeline.h"

namespace maco::runtime {

/// Times in nanoseconds, and bytes, of all ranks together. Disjoint: no moment of an SM or of the
/// critical path is counted twice.
struct ProfileRow {
  std::string op, kind;  // "q_*": all of q_0, q_1, ... of the kind, as repeated layers have them
  std::string function;  // empty: all of the op's functions
  // On the critical path.
  int64_t path = 0;  // the sum of the three that follow
  int64_t path_hand_off = 0, path_busy = 0, path_pages = 0;
  // On all SMs.
  int64_t busy = 0;
  int64_t data = 0;    // waiting for other tasks' data
  int64_t pages = 0;   // waiting for pages
  int64_t bytes = 0;   // that the tasks' regions read and write, for the dims' maxima; payload only
  int64_t active = 0;  // in which some SM of the rank worked, summed over ranks
  int64_t tasks = 0;   // tasks that ran
  int64_t sms = 0;     // SMs that ran some of them, on all ranks
};

/// How evenly the SMs of a role were used, among those with tasks.
struct RoleBalance {
  ir::Role role = ir::Role::Compute;
  int64_t sms = 0;      // of all ranks
  int64_t fullest = 0;  // the most work of an SM: busy or waiting for pages
  int rank = 0, sm = 0;
  double mean = 0;
};

struct ProfileTable {
  std::vector<ProfileRow> ops;        // by `path`, the longest first
  std::vector<ProfileRow> functions;  // for ops with several functions, in the order of `ops`
  ProfileRow total;
  std::vector<RoleBalance> roles;
  int64_t time = 0;  // of the launch; total.path is the same
};

ProfileTable make_table(const Timeline& timeline);
/// The table for people; sums over SMs and bytes are divided by the number of ranks.
std::string print(const Timeline& timeline, const ProfileTable& table);

}  // namespace maco::runtime
