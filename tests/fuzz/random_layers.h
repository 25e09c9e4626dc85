// Seeded random graphs of layers: products, what stands between them, and collectives of all sizes,
// so that what passes decide by shapes is decided either way: which SMs communicate, what products
// send, what is part of what.
#pragma once

#include <cstdint>
#include <string>

namespace maco::fuzz {

/// As DSL; the same seed gives the same text. A few are refused for what they name: roles that have
/// no place for something, algorithms that aren't for it.
std::string random_layers(uint64_t seed);

}  // namespace maco::fuzz
