// Other tiles than the compiler would choose, for graphs whose bits must not depend on them.
#pragma once

#include <cstdint>

#include "compiler/passes/options.h"

namespace maco::fuzz {

/// For PipelineOptions::after_pass: behind choose-tiles every op that has a choice is cut
/// otherwise, by `seed`, as far as it may be; its method stays, unless results don't depend on it.
std::function<void(const passes::Pass&, passes::Unit&)> with_other_tiles(uint64_t seed);

}  // namespace maco::fuzz
