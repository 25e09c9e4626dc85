// Other tiles than the compiler would choose, for graphs whose bits must not depend on them.
#pragma once

#include <cstdint>

#include "compiler/pipeline/options.h"

namespace maco::fuzz {

/// For PipelineOptions::after_pass: after choose-tiles every op with a choice gets another cut, by
/// `seed`, as far as allowed. Its method stays, unless results don't depend on it.
std::function<void(const passes::Pass&, passes::Unit&)> with_other_tiles(uint64_t seed);

}  // namespace maco::fuzz
