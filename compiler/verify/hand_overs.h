// Collectives that a library carries out outside of the kernel.
#pragma once

#include "compiler/verify/model.h"
#include "compiler/verify/report.h"

namespace maco::verify {

/// Tasks that send by wire, and those that receive.
///
/// What a task hands over, the library reads and writes until the next task of the stream has it
/// back; the accesses of both are ordered against all others, but what is ordered between the two
/// would meet the library. Nothing can be, if
///   - the task that receives comes right behind the one that sends, in its stream and on the ranks
///     on which it runs, and waits for nothing that comes after that but packets;
///   - it touches all that the other touches, but for wires: it reads what that reads, and writes
///     what that may write.
/// For whatever came between them would have to be heard of by the second and not by the first.
/// Packets can't bring it if the first signals by packets alone: a rank that has them has those of
/// all ranks, so that what comes behind is behind all hand-overs. If it also signals otherwise,
/// every way from the first to what the second waits for is looked at.
///
/// The library runs one collective after the other, in the order of the tasks that hand them over:
/// these are all of one stream.
void check_hand_overs(const Model& model, Reporter& reporter);

}  // namespace maco::verify
