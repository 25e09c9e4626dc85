// Runs the statements of a user's algorithm that its author ordered, and checks that the order is
// enough: the race checker of such collectives.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ops/collectives/chunk_flow.h"
#include "compiler/ops/collectives/chunk_program.h"
#include "compiler/ops/collectives/chunk_values.h"

namespace maco::ops {

/// Returns false, and reports why, if the statements can race, wait for ever, or leave something to
/// the next launch. If `fault` isn't null, stores there a run that shows the fault, if there is
/// one, and in `run` that of all statements if there is no fault.
bool run_as_ordered(const ChunkProgram& program, const ir::UserAlgorithm& algorithm,
                    ChunkValues& values, ir::Diagnostics& diagnostics,
                    std::optional<ChunkFault>* fault, std::vector<ChunkFault::At>& run);

}  // namespace maco::ops
