// Collectives as their users wrote them, chunk by chunk: the tasks that do what chunk_flow.h found.
//
// Each value goes straight to whom it is for: what is sent lies in a cell of its own at its reader,
// so that no cell is written twice in a launch, and steps wait for nothing but what they read. What
// a rank makes or gets it passes on in the same task. So neither a chunk that is read from a peer
// (`get`, a reduction of peers' chunks) nor one that is written in place takes more than a push.
#pragma once

#include "compiler/ops/collectives/chunk_flow.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

/// Presuppose that chunk_flow found nothing wrong.
void tile_user_algorithm(TileContext& context, const ir::UserAlgorithm& algorithm);
Cut choose_user_algorithm(const TileContext& context, const ir::UserAlgorithm& algorithm);

}  // namespace maco::ops
