// What a trace of maco-run --profile says about ops.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ir/program.h"

namespace maco::api {

/// Times of an op's tasks on all ranks, in microseconds. `begin` and `end` count from the launch's
/// start; the others are summed over tasks.
struct OpTimes {
  int64_t tasks = 0;
  double begin = 0, end = 0;
  double work = 0, longest = 0;   // from the end of a task's waits until its SM goes on
  double waits = 0;               // before the work, for other tasks
  double pages = 0, packets = 0;  // within the work: waiting for pages, for packets
};
/// Times by the name of an op; only ops that the passes left.
using TraceTimes = std::map<std::string, OpTimes, std::less<>>;

/// What a trace says about its kernel. All empty: nothing.
struct TraceKernel {
  std::string graph, target, board;
  std::string program;  // the ir::text_hash of its Program
};
/// "" if the trace is of this Program, else "it is of graph 'b' for target 'cpu', and this is 'a'
/// for 'sm_90a'".
std::string other_kernel(const TraceKernel& traced, const ir::Program& program);

/// Reads a trace. Returns nothing, with the reason in `error`, if the text is no trace. `kernel`,
/// if not null, gets the kernel of the trace.
std::optional<TraceTimes> read_trace(std::string_view trace, std::string& error,
                                     TraceKernel* kernel = nullptr);

}  // namespace maco::api
