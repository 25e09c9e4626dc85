// Explores every interleaving of a small Program. A state is how far each stream of each rank has
// come; a move is the start or the end of a task; what has been signalled follows from what has
// ended. Nothing is derived from an order that somebody computed.
//
// Packets carry their own data and order nothing else. So there are three explorations:
// 1. A task that waits for packets waits. This finds hangs.
// 2. Such a task need not wait where its tile may be beyond the rows. This finds which tasks have
//    ended when a task starts.
// 3. Such a task starts before its packets come. This finds whose writes it sees then: the device
//    may do a read ahead of the flag that other data carries, and what a sender wrote elsewhere may
//    come after its packets.
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

/// Explores `launches` launches of every rank; nothing if there are more than `most` states. Needs
/// valid ids and at most 64 tasks times ranks times launches. Local events are counters that are
/// never reset, and words of peers hold the epoch stored last: the behaviour of Programs with wrong
/// counts is found out as well.
std::optional<Exploration> explore(const ir::Program& program, int launches, size_t most);

}  // namespace maco::proofs
