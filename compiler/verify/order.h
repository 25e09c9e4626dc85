#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/verify/model.h"
#include "compiler/verify/report.h"

namespace maco::verify {

/// A task on a rank.
struct Node {
  uint32_t task = 0;
  int32_t rank = 0;
};

/// The tasks in an order in which stream order and every wait for this launch point forward,
/// whichever ranks they are on: the list of tasks, if it is one. Nothing if there is none.
std::optional<std::vector<uint32_t>> common_order(const Model& model);

/// The nodes of one launch (of the ranks that the model follows) in an order in which stream order
/// and every wait for this launch point forward; among those that are free, the first of the list
/// of tasks comes first. Each launch has the same: waits for earlier launches point back anyway.
/// Nothing if there is a cycle, a deadlock, which is reported. `common`: what common_order says.
std::optional<std::vector<Node>> topological_order(
    const Model& model, const std::optional<std::vector<uint32_t>>& common, Reporter& reporter);

}  // namespace maco::verify
