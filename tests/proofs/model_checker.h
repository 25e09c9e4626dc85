// Every interleaving of a small Program: states are how far each stream of each rank has come,
// moves are the start and the end of a task, and what has been signalled follows from what has
// ended. Nothing is derived from an order that somebody computed.
//
// Packets carry their own data and order nothing else. So there are three explorations: one in
// which a task that waits for packets waits (can it hang?), one in which it need not where its tile
// may be beyond the rows, which says what is over when a task starts, and one in which it starts
// before they come, which says whose writes it sees then: a read may be done ahead of the flag that
// the data of another carries, and what a sender wrote elsewhere may come after its packets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/program.h"

namespace maco::proofs {

struct Exploration {
  std::string
      verdict;  // "", "deadlock", "race" (also: what the list of tasks has later comes first)
  std::string what;
  int64_t states = 0;
};

/// `launches` launches of every rank; nothing if there are more than `most` states. Presupposes
/// valid ids and at most 64 tasks times ranks times launches. Local events are counters that are
/// never reset, words of peers hold the epoch stored last: what a Program with wrong counts does is
/// found out as well.
std::optional<Exploration> explore(const ir::Program& program, int launches, size_t most);

}  // namespace maco::proofs
