// Runs a Program whose device functions don't matter, or don't exist: each task reads all that it
// declares, and writes a digest of that to all that it may write. No compiler and no graph needed.
#pragma once

#include <memory>
#include <vector>

#include "ir/program.h"
#include "runtime/cpu/stepper.h"

namespace maco::runtime {

/// For a synced Program whose structure the verifier has found right. Inputs differ from launch to
/// launch and from rank to rank. Packets are words of their own. `skip`: tasks that don't poll
/// packets, as if their tiles lay beyond the dims' actual values; empty: none.
std::unique_ptr<Steppable> make_stand_in(const ir::Program& program, std::vector<bool> skip = {});

}  // namespace maco::runtime
