// How a violation comes about: a schedule that runs up to it. maco-run --replay follows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/verify/precedence.h"
#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::verify {

struct Witness {
  enum class Claim : uint8_t {
    Race,      // after the schedule `first` and `second` can both run
    Order,     // after the schedule `second` can run although `first` has to have ended before
    Unseen,    // no run shows it: only packets order `second` after `first`, and make no other
               // write visible; or blocks of others, which count as all blocks, share no byte
    Deadlock,  // after the schedule no task can run, and some have not ended
  };
  Claim claim = Claim::Race;
  Instance first{}, second{};     // not of Deadlock
  std::vector<Instance> stuck{};  // Deadlock: a cycle, each waits for the next
  /// Dims have their minima, so that every tile that may lie beyond the actual rows does.
  bool small_dims = false;
  std::vector<Instance> schedule{};  // each can run when those before it have ended

  friend bool operator==(const Witness&, const Witness&) = default;
};

/// Adds the schedule: all that happens before the two tasks or, of a deadlock, all that can end.
/// Tells Race and Unseen apart. `witness` is one that the verifier gave for `program`. The schedule
/// follows the edges of Precedence; neither of the two tasks is in it if the verifier is right.
void complete(const ir::Program& program, Witness& witness);

/// The text of a witness; `//` begins a comment.
///   witness CLAIM of NAME HASH   race, order, unseen or deadlock; the Program and the hash of its
///                                text
///   dims minimal                 if small_dims
///   first TASK   second TASK     each in a line of its own
///   stuck TASK                   for each of a deadlock's cycle
///   run TASK                     for each of the schedule
/// TASK is tN rank N launch N, tN being the label in the Program's canonical text.
std::string print(const ir::Program& program, const Witness& witness);

/// parse_witness(print(w)) == w. Reports what is wrong, and refuses the witness of another Program.
std::optional<Witness> parse_witness(int32_t file, const ir::Program& program,
                                     ir::Diagnostics& diagnostics);

/// "race", "order", "unseen", "deadlock".
std::string_view name(Witness::Claim claim);

}  // namespace maco::verify
