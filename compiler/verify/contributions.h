#pragma once

#include <vector>

#include "compiler/verify/order.h"

namespace maco::verify {

/// Every collective delivers what Program::collectives says: each tile of each block of each rank's
/// result holds the contributions that it must, each once, of this launch. Presupposes that the
/// other proofs hold.
void check_contributions(const Model& model, const std::vector<Node>& order, Reporter& reporter);

}  // namespace maco::verify
