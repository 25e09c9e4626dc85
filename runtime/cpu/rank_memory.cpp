#include "runtime/cpu/rank_memory.h"

#include "runtime/cpu/handed.h"

namespace maco::runtime {
namespace {

// A CTA's shared memory, with fences: an overflow stops where it happens.
FencedMemory fenced_cta_memory(int64_t bytes) {
  constexpr size_t align = 128;  // of CtaMemory
  return {static_cast<size_t>(bytes), align, 1};
}

}  // namespace

RankState::RankState(const ir::Manifest& m, int number, bool fenced_ctas,
                     std::optional<size_t> fence, int64_t profiled_tasks, char* shared)
    : rank(number),
      fences(fence),
      arena(m.arena_bytes, fence),
      counters(m.local_events * 4),
      handed(static_cast<int64_t>(m.handed.size() * sizeof(Handed))) {
  if (!shared)
    own_symmetric.emplace(symmetric_size(m.symmetric_bytes, m.peer_events, m.world), fence);
  symmetric = shared ? shared : own_symmetric->data();
  tensors.resize(m.tensors.size());
  tensor_pointers.resize(m.tensors.size());
  maps.resize(m.maps.size());
  reports.resize(static_cast<size_t>(m.ctas));
  if (profiled_tasks > 0) {
    stamps.ctas.resize(static_cast<size_t>(m.ctas));
    stamps.tasks.resize(static_cast<size_t>(profiled_tasks));
  }
  for (int64_t i = 0; i < m.ctas; ++i)
    ctas.push_back(fenced_ctas
                       ? fenced_memory.emplace_back(fenced_cta_memory(m.shared_bytes)).data()
                       : shared_memory.emplace_back(m.shared_bytes).data());
}

void RankState::allocate(const ir::Manifest& m, size_t tensor) {
  const ir::ManifestTensor& t = m.tensors[tensor];
  tensors[tensor].emplace(t.max_elements * ir::size_of(t.dtype), fences);
  tensor_pointers[tensor] = tensors[tensor]->data();
}

void RankState::make_maps(const ir::Manifest& m) {
  for (size_t i = 0; i < maps.size(); ++i) {
    const ir::ManifestMap& map = m.maps[i];
    const char* base =
        map.tensor < 0 ? arena.data()
                       : static_cast<const char*>(tensor_pointers[static_cast<size_t>(map.tensor)]);
    maps[i] = {{reinterpret_cast<uintptr_t>(base) + static_cast<u64>(map.offset),
                static_cast<u64>(map.rows), static_cast<u64>(map.cols),
                static_cast<u64>(ir::size_of(map.dtype)), static_cast<u64>(map.box_rows),
                static_cast<u64>(map.box_cols), static_cast<u64>(map.run)}};
  }
}

}  // namespace maco::runtime
