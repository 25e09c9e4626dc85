// What a trace of maco-run --profile says of ops.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ir/program.h"

namespace maco::api {

/// Of an op's tasks on all ranks, in microseconds: `begin` and `end` from the launch's begin, the
/// others summed over tasks.
struct OpTimes {
  int64_t tasks = 0;
  double begin = 0, end = 0;
  double work = 0, longest = 0;   // from the end of a task's waits until its SM goes on
  double waits = 0;               // before the work, for other tasks
  double pages = 0, packets = 0;  // within the work: waiting for these
};
/// By op; those that the passes left.
using TraceTimes = std::map<std::string, OpTimes, std::less<>>;

/// What a trace says of the kernel that it is of. All empty: it says nothing.
struct TraceKernel {
  std::string graph, target, board;
  std::string program;  // the ir::text_hash of its Program
};
/// "" if that is this Program, else "it is of graph 'b' for target 'cpu', and this is 'a' for
/// 'sm_90a'".
std::string other_kernel(const TraceKernel& traced, const ir::Program& program);

/// Nothing, with the reason in `error`, if it is none. `kernel`, if not null: whose it is.
std::optional<TraceTimes> read_trace(std::string_view trace, std::string& error,
                                     TraceKernel* kernel = nullptr);

}  // namespace maco::api
