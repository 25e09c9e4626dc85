// Runs a Program whose device functions don't matter, or don't exist: each task reads everything
// that it declares, and writes a digest of that to everything that it may write. Needs no compiler
// and no graph.
#pragma once

#include <memory>
#include <vector>

#include "ir/program.h"
#include "runtime/cpu/stepper.h"

namespace maco::runtime {

/// For a synced Program with whose structure the verifier has found nothing wrong. Inputs differ
/// from launch to launch and from rank to rank. Packets are words of their own. `skip`: tasks that
/// don't poll packets, as if their tiles lay beyond the dims' actual values; empty: none.
std::unique_ptr<Steppable> make_stand_in(const ir::Program& program, std::vector<bool> skip = {});

}  // namespace maco::runtime
