// Pipelines for random graphs.
#pragma once

#include <cstdint>
#include <string>

namespace maco::fuzz {

/// The graph of `text` (DSL) with a pipeline of random stages and microbatches, if at least two of
/// its ops can be stages of one; else `text`.
std::string with_pipeline(const std::string& text, uint64_t seed);

}  // namespace maco::fuzz
