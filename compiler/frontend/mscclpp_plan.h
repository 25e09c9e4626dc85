// Turns MSCCL++ execution plans, as its Python DSL writes them, into collectives that are written
// chunk by chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/diagnostics.h"
#include "ir/dtype.h"

namespace maco::frontend {

struct PlanOptions {
  std::optional<int64_t> elements;  // of the input on each rank
  ir::DType dtype = ir::DType::BF16;
};

/// The text of a .maco file that defines the algorithm of plan `file` (JSON) and uses it once in a
/// graph. Returns nothing, after reporting, if the plan is wrong or needs what isn't supported.
std::optional<std::string> import_plan(int32_t file, const PlanOptions& options,
                                       ir::Diagnostics& diagnostics);

}  // namespace maco::frontend
