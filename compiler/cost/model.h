// How long things take on a machine: one model, which the choice of tiles and the schedule share.
// What a task does is its device function's to say (compiler/functions). Estimates steer choices,
// never results.
#pragma once

#include "compiler/cost/machine.h"
#include "ir/program.h"

namespace maco::cost {

/// What a task does on its SM.
struct Work {
  double bytes = 0;                 // that come from memory or go there
  double multiply_adds = 0;         // in f32, on the ordinary cores
  double matrix_multiply_adds = 0;  // of 16-bit floats, on tensor cores
  double fixed_microseconds = 0;    // the hand-over from task to task, whatever it does
};

/// Microseconds from the end of a task until one on another SM that waits for it begins its work,
/// while others stream: what taking the waits away from a decoder saved, by hand-over
/// (docs/notebook/decoding.md).
constexpr double kHandOver = 2.5;
/// The same where packets are handed over.
constexpr double kPacketHandOver = 1.7;

/// Microseconds from a store to the wait on another GPU that sees it, measured between H200s.
constexpr double kHop = 1.3;

/// Rows of a region that are there in a launch that costs are reckoned for.
int64_t typical_rows(const ir::Program& program, const ir::Region& region);

/// The bytes of all regions of the task, once each: of functions that do little else than stream.
Work streaming(const ir::Program& program, const ir::Task& task);
/// The same of functions that load what they need when they need it, with no loader ahead of them:
/// three times the bytes on a GPU. Of a prompt on an H200, slices took 3.4 times what their bytes
/// take at an SM's share of the memory's rate, norms 3 to 9 and ropes 4 to 6
/// (docs/benchmarks/logs/prefill-steps-h200.txt), before norms and ropes got registers; since then
/// these take 1.6 times, appends 2.1 (prefill-roles-h200.txt).
Work unaided(Work work, const Machine& machine);
/// Of functions that move some of their first region to their last: as many elements as the smaller
/// one has.
Work moving(const ir::Program& program, const ir::Task& task);

/// What a collective waits for on its way, on the rank where that is most.
struct Route {
  double hops = 0;        // one after another, from a rank's flag to a peer that waits for it
  double link_bytes = 0;  // that the rank sends
};
double seconds(const Route& route, const Machine& machine);

/// Microseconds that an SM needs, where `sms` of the machine's do the same at the same time: the
/// longer of arithmetic and traffic.
double microseconds(const Work& work, const Machine& machine, int32_t sms);
inline double microseconds(const Work& work, const Machine& machine) {
  return microseconds(work, machine, machine.sms);
}

}  // namespace maco::cost
