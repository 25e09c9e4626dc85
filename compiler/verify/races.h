#pragma once

#include <vector>

#include "compiler/verify/model.h"
#include "compiler/verify/order.h"
#include "compiler/verify/report.h"

namespace maco::verify {

/// Every two accesses to the same bytes, one of them a write, are ordered, and within a launch as
/// the list of tasks orders them. `order` is a topological order of the model's nodes.
void check_races(const Model& model, const std::vector<Node>& order, const VerifyOptions& options,
                 Reporter& reporter, VerifyStatistics& statistics);

}  // namespace maco::verify
