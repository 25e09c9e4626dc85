#pragma once

#include <vector>

#include "compiler/verify/model.h"
#include "compiler/verify/order.h"
#include "compiler/verify/verify.h"

namespace maco::verify {

/// Whether what check_races has to prove surely holds: a short proof that takes all ranks and
/// launches at once, in time near linear in the tasks. False if it doesn't come to an end; then
/// nothing is known. `order`: the tasks, so that streams and all waits point forward, on any ranks.
bool proved_at_once(const Model& model, const std::vector<uint32_t>& order,
                    const VerifyOptions& options, VerifyStatistics& statistics);

}  // namespace maco::verify
