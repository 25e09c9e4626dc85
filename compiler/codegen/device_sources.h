// The device code that goes into kernel.cu: headers of runtime/device, embedded when MACO is built,
// and what functions registered from outside bring along.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/functions/function.h"

namespace maco::codegen {

/// A header that the source names and nobody has, or "".
std::string unknown_header(const functions::Source& source);

/// The shape of a CTA, for the headers: struct maco::Cta. `world`: ranks; `scouts`: what tables.h
/// says of that.
std::string cta_source(const ir::Resources& uses, int64_t world, bool scouts);
/// The most pages that the head of a CTA's shared memory can account for.
inline constexpr int32_t kMostPages = 32;

/// The text of a header of runtime/device: "cuda/words.cuh".
std::string device_header(std::string_view name);

/// The headers that every kernel has and those of `functions` and `methods`, each once, in the
/// order in which they are needed; then the texts of both. `prepared`: with what a signaller that
/// prepares tasks needs.
std::string device_sources(const std::vector<const functions::Function*>& functions,
                           const std::vector<const functions::Method*>& methods = {},
                           bool prepared = false);

}  // namespace maco::codegen
