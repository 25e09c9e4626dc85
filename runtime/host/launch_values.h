// A launch's dims and scalars, and what may be wrong with their values, for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ir/manifest.h"

namespace maco::runtime {

/// Dim or scalar `i`, counted over both; nullptr if there is none.
const ir::ManifestRange* variable_at(const ir::Manifest& manifest, size_t i);
/// Says that a dim or scalar has a value outside of its range.
std::string out_of_range(const ir::Manifest& manifest, size_t variable, int64_t value);
/// Why the kernel doesn't accept the value; "" if it does.
std::string wrong_value(const ir::ManifestValue& v, int64_t value);

}  // namespace maco::runtime
