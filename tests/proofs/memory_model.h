// The scoped memory model of PTX (PTX ISA, chapter 8), for the accesses of a Program's tasks.
//
// A CTA's stream on a rank is a thread (what a task's own threads do is joined by CTA barriers on
// both sides of a flag, 9.7.13); a rank is on a GPU of its own. A task is, in program order
// (8.9.1): for each wait a load of the flag, its reads, its writes, for each signal a store to the
// flag (a Local event's is a reduction). Accesses of data are weak (8.4). A flag is stored by a
// release and loaded by an acquire, unless they are relaxed, each at the scope of its event (8.5).
//
//   - A load that waits sees what it waits for, or, by way of the reductions in between, something
//     observed later (8.9.2). Store and load synchronise if they are release and acquire (8.8) and
//     morally strong: the scope of each holds the other's thread (8.7).
//   - Base causality order is the closure of program order, synchronisation, and the order of
//     launches of a rank (8.9.5).
//   - Two overlapping accesses, one of them a write, that neither are morally strong nor stand in
//     causality order, race (8.7.1).
//
// Packets are loads and stores of 8 bytes at their event's scope, relaxed: morally strong among
// themselves, if the scope holds both ends, and no synchronisation. One thing is taken from outside
// of the model: a read whose task has ended before it sends a packet is not made to see a write
// that a receiver of the packet issues later (the packet depends on the task by a barrier, and
// values don't come out of thin air, 8.10.4).
#pragma once

#include <string>

#include "ir/program.h"
#include "tests/proofs/second_opinion.h"

namespace maco::proofs {

/// "" if no two accesses race and what has to come after something without sharing data does; else
/// which. Presupposes that counts are right and that nothing hangs.
std::string memory_race(const ir::Program& program, const Conflicts& conflicts);

}  // namespace maco::proofs
