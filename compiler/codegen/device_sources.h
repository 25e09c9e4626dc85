// The device headers that go into kernel.cu, as texts (runtime/device, embedded when MACO is
// built).
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace maco::codegen {

/// Whether there is such a function of maco::ops.
bool has_device_function(std::string_view name);

/// The headers that every kernel has and those that define `functions` of maco::ops (with what they
/// need), in order of inclusion. A header of ops/ that uses another says so in a line "// Needs
/// ops/other.cuh.". An unknown function is a bug in MACO.
std::string device_sources(const std::set<std::string>& functions);

}  // namespace maco::codegen
