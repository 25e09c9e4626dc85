#pragma once

#include "compiler/verify/model.h"
#include "compiler/verify/report.h"

namespace maco::verify {

/// What a wait waits for is exactly what will arrive, on every rank, whatever the dims and scalars.
void check_counts(const Model& model, Reporter& reporter);

}  // namespace maco::verify
