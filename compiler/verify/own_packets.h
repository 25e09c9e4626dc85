// Temporaries with packets: a task that reads them finds what this launch's tasks have sent, all of
// it.
#pragma once

#include "compiler/verify/model.h"
#include "compiler/verify/report.h"

namespace maco::verify {

/// Presupposes check_structure, check_defined and check_counts.
void check_own_packets(const Model& model, Reporter& reporter);

}  // namespace maco::verify
