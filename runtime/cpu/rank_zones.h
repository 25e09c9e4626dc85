// The red zones around a rank's memory: what lies between them, and what was touched, in words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/cpu/rank_memory.h"

namespace maco::runtime {

/// What lies between two red zones, for messages.
struct ZonePiece {
  std::string_view name;  // of a tensor; empty for anything else, such as the slots
  int64_t element_bytes = 1, elements = 0;
  std::string_view what{};
};

/// Calls visit(zones, piece, memory) for each piece of a rank's memory; `memory` is null if there
/// are no fences.
void visit_zones(
    const ir::Manifest& manifest, const RankState& rank,
    const std::function<void(const RedZones&, const ZonePiece&, const FencedMemory*)>& visit);
/// Restores a rank's red zones.
void mend_zones(const ir::Manifest& manifest, const RankState& rank);
/// Describes a byte of a red zone, `at` bytes from the begin of the memory that the zone surrounds:
/// "element 300 of 'y' on rank 0, which has 256".
std::string place_in_red_zone(int64_t at, const ZonePiece& piece, int rank);
/// Describes the address in the red zones of a rank; "" if it is in none.
std::string red_zone(const ir::Manifest& manifest, const RankState& rank, const void* address);
/// "address 0x10, far from every tensor".
std::string far_away(const void* address);

}  // namespace maco::runtime
