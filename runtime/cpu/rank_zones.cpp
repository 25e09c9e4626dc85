#include "runtime/cpu/rank_zones.h"

#include <fmt/format.h>

namespace maco::runtime {
namespace {

constexpr int64_t kNear = int64_t{1} << 20;

}  // namespace

std::string far_away(const void* address) {
  return fmt::format("address {}, far from every tensor", fmt::ptr(address));
}

void mend_zones(const ir::Manifest& manifest, const RankState& rank) {
  visit_zones(manifest, rank,
              [](const RedZones& zones, const ZonePiece&, const FencedMemory*) { zones.mend(); });
}

void visit_zones(
    const ir::Manifest& manifest, const RankState& rank,
    const std::function<void(const RedZones&, const ZonePiece&, const FencedMemory*)>& visit) {
  const auto visit_fenced = [&](const std::optional<TensorMemory>& memory, const ZonePiece& piece) {
    if (memory && memory->fenced()) visit(memory->fenced()->zones(), piece, memory->fenced());
  };
  for (size_t i = 0; i < rank.tensors.size(); ++i) {
    const ir::ManifestTensor& t = manifest.tensors[i];
    visit_fenced(rank.tensors[i], {t.name, ir::size_of(t.dtype), t.max_elements});
  }
  if (rank.arena.fenced()) {
    visit(rank.arena.fenced()->zones(), ZonePiece{"", 1, manifest.arena_bytes, "the temporaries"},
          rank.arena.fenced());
    for (const ir::ManifestTemporary& t : manifest.temporaries) {
      const int64_t size = ir::size_of(t.dtype), bytes = t.max_elements * size;
      char* data = rank.arena.data() + t.offset;
      visit(RedZones(data - t.before, data, static_cast<size_t>(bytes), data + bytes + t.behind),
            ZonePiece{t.name, size, t.max_elements}, static_cast<const FencedMemory*>(nullptr));
    }
  }
  if (rank.own_symmetric)
    visit_fenced(rank.own_symmetric,
                 {"", 1, static_cast<int64_t>(rank.own_symmetric->size()), "the slots"});
}

std::string place_in_red_zone(int64_t at, const ZonePiece& piece, int rank) {
  const int64_t size = piece.element_bytes;
  if (piece.name.empty())
    return fmt::format("byte {} {} {} of rank {}", at < 0 ? -at : at - piece.elements + 1,
                       at < 0 ? "before" : "behind", piece.what, rank);
  const int64_t element = at < 0 ? (at - size + 1) / size : at / size;
  return fmt::format("element {} of '{}' on rank {}, which has {}", element, piece.name, rank,
                     piece.elements);
}

std::string red_zone(const ir::Manifest& manifest, const RankState& rank, const void* address) {
  std::string place;
  const auto look = [&](const RedZones& zones, const ZonePiece& piece, const FencedMemory* fenced) {
    if (!(fenced ? fenced->fences(address) : zones.contains(address))) return;
    const int64_t at = static_cast<const char*>(address) - zones.data(),
                  far = at < 0 ? -at : at - static_cast<int64_t>(zones.size());
    // A far-away address was probably computed from a tensor, not from the nearest memory.
    place = far <= kNear || !piece.name.empty() ? place_in_red_zone(at, piece, rank.rank)
                                                : far_away(address);
  };
  visit_zones(manifest, rank, look);
  return place;
}

}  // namespace maco::runtime
