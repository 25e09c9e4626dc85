#pragma once

#include "compiler/verify/model.h"
#include "compiler/verify/report.h"

namespace maco::verify {

/// Every signal is a release and every wait an acquire, at a scope that reaches both. Presupposes
/// check_counts.
void check_scope(const Model& model, Reporter& reporter);

}  // namespace maco::verify
