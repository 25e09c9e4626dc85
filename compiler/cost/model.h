// How long things take on a machine: one model, which the choice of tiles and the schedule share.
// Each device function says what its tasks do (compiler/functions). Estimates steer choices, never
// results.
#pragma once

#include "compiler/cost/machine.h"
#include "ir/program.h"

namespace maco::cost {

/// What a task does on its SM.
struct Work {
  double bytes = 0;                 // read from memory or written to it
  double multiply_adds = 0;         // in f32, on the ordinary cores
  double matrix_multiply_adds = 0;  // of 16-bit floats, on tensor cores
  double fixed_microseconds = 0;    // what any task takes, whatever it does: the hand-off
};

/// How many rows of a region there are in the launch for which costs are computed.
int64_t typical_rows(const ir::Program& program, const ir::Region& region);

/// The bytes of all regions of the task, once each: for functions that do little else than stream.
Work streaming(const ir::Program& program, const ir::Task& task, const Machine& machine);
/// As streaming, for functions that load what they need when they need it, without a loader ahead
/// of them: three times the bytes on a GPU. For a prompt on an H200, slices took 3.4 times as long
/// as their bytes take at an SM's share of the memory bandwidth, norms 3 to 9 times and ropes 4 to
/// 6 times (docs/benchmarks/logs/prefill-steps-h200.txt), before norms and ropes got registers.
/// Since then norms and ropes take 1.6 times, appends 2.1 times (prefill-roles-h200.txt).
Work unaided(Work work, const Machine& machine);
/// For functions that move a part of their first region to their last: as many elements as the
/// smaller region has.
Work moving(const ir::Program& program, const ir::Task& task, const Machine& machine);

/// What delays a collective, on the rank that waits longest.
struct Route {
  double hops = 0;        // one after another, from a rank's flag to a peer that waits for it
  double link_bytes = 0;  // sent by the rank
};
double seconds(const Route& route, const Machine& machine);

/// Microseconds that an SM needs while `sms` of the machine's SMs do the same: the longer of
/// arithmetic and memory traffic.
double microseconds(const Work& work, const Machine& machine, int32_t sms);
inline double microseconds(const Work& work, const Machine& machine) {
  return microseconds(work, machine, machine.sms);
}

}  // namespace maco::cost
