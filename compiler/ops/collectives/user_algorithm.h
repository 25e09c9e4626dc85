// Collectives as their users wrote them, chunk by chunk: makes the tasks that do what chunk_flow.h
// has found.
//
// Each value goes straight to its reader, into a cell of its own, so that no cell is written twice
// in a launch and steps wait only for what they read. A rank passes on what it makes or gets in the
// same task. So a chunk that is read from a peer (`get`, a reduction of peers' chunks) or written
// in place costs no more than a push.
#pragma once

#include "compiler/ops/collectives/chunk_flow.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

/// Both need an algorithm with which chunk_flow has found nothing wrong.
void tile_user_algorithm(TileContext& context, const ir::UserAlgorithm& algorithm);
Cut choose_user_algorithm(const TileContext& context, const ir::UserAlgorithm& algorithm);

}  // namespace maco::ops
