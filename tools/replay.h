// Follows a witness of the verifier's in a run on the CPU, and says whether its claim is true.
#pragma once

#include <functional>
#include <string>

#include "compiler/verify/witness.h"
#include "ir/program.h"
#include "runtime/cpu/stepper.h"

namespace maco::tools {

/// A Program that can be run task by task. `program` must be synced, with the right structure.
struct ReplaySubject {
  const ir::Program& program;
  runtime::Steppable& run;
  runtime::LaunchValues values;  // of dims and scalars; missing dims: their maxima
  // Called before a rank begins a launch, unless empty.
  std::function<void(int rank, int launch)> write_tensors{};
};

struct ReplayResult {
  bool confirmed = false;
  // Not confirmed because a device function polled the packets that it reads, whatever the
  // Program's waits say.
  bool polled = false;
  std::string error;  // why it couldn't be followed; then nothing else is set
  std::string story;  // lines
};

/// Holds back all tasks except those of the witness's schedule, in its order. Then, for
///   race      lets the two tasks run in both orders, in two runs: each must be able to go first.
///             Says which bytes both touch, and whether the order shows in them and in what the
///             launches leave behind.
///   order     lets the second task go although the first hasn't run.
///   deadlock  lets everything go: nothing may end.
///   unseen    an error: a CPU shows all writes to everybody.
ReplayResult replay(const ReplaySubject& subject, const verify::Witness& witness);

}  // namespace maco::tools
