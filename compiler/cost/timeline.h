// When each task of a launch runs, by a model of the machine: one clock over all SMs of all ranks.
//
// An SM runs the tasks of its stream in order. A task begins its work once the one before it has
// ended and its waits are over; a wait is over when the last signal that it needs was given, and
// some time later on another SM or rank (Board::hand_over, packet_hand_over, hop). What comes
// through pages is fetched by the SM's loader, which runs ahead of the tasks as far as the ring has
// room. Device memory and links have a rate that those share who use them at that moment; none of
// them gets more than an SM can take.
#pragma once

#include <optional>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/cost/model.h"
#include "ir/program.h"

namespace maco::cost {

/// One task on one rank, in microseconds from the launch's begin. A task that the rank doesn't run
/// has `begun` < 0.
struct Span {
  double begun = -1;   // it waits
  double waited = 0;   // its work begins
  double worked = 0;   // the work is done; signals follow at once
  double pages = 0;    // duration: waiting for pages within the work
  double filling = 0;  // its loader begins to fetch, and has it all; equal if nothing is fetched
  double filled = 0;
};

/// A launch. Ranks whose tasks, waits and peers are alike have the same times, and are computed
/// once, as a class.
struct LaunchTimes {
  std::vector<size_t> class_of;          // by rank
  std::vector<std::vector<Span>> spans;  // by class, then by task
  double end = 0;                        // when the last task has ended

  const Span& at(int rank, ir::TaskId task) const {
    return spans[class_of[static_cast<size_t>(rank)]][ir::index(task)];
  }
};

/// The times of a scheduled Program with waits. `works`: what each task does. Nothing if tasks wait
/// for each other for ever, which no proved Program's do.
std::optional<LaunchTimes> launch_times(const ir::Program& program, const std::vector<Work>& works,
                                        const Machine& machine);

/// The classes of ranks that a Program doesn't tell apart, by rank.
std::vector<size_t> rank_classes(const ir::Program& program);

}  // namespace maco::cost
