// Seeded random graphs of layers: matmuls, what stands between them, and collectives of all sizes.
// So each choice that passes make by shapes occurs in both ways: which SMs communicate, what
// matmuls push, what is fused.
#pragma once

#include <cstdint>
#include <string>

namespace maco::fuzz {

/// The DSL; the same seed gives the same text. A few are refused because of what they name: roles
/// without a place for some op, unsuitable algorithms.
std::string random_layers(uint64_t seed);

}  // namespace maco::fuzz
