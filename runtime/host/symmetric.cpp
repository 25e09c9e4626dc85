#include "runtime/host/symmetric.h"

#include <fmt/format.h>

#include "runtime/host/abi.h"

namespace maco::runtime {

extern const SymmetricProvider kPeerToPeerProvider;  // symmetric_p2p.cpp
extern const SymmetricProvider kHandlesProvider;     // symmetric_handles.cpp
extern const SymmetricProvider kNcclProvider;        // symmetric_nccl.cpp
extern const SymmetricProvider kNvshmemProvider;     // symmetric_nvshmem.cpp

namespace {

const SymmetricProvider* const kProviders[] = {
    &kPeerToPeerProvider,
    &kHandlesProvider,
    &kNcclProvider,
    &kNvshmemProvider,
};

}  // namespace

SymmetricLayout symmetric_layout(const ir::Manifest& m) {
  return {static_cast<size_t>(m.symmetric_bytes),
          static_cast<size_t>(control_offset(m.symmetric_bytes, m.peer_events, m.world)),
          static_cast<size_t>(symmetric_size(m.symmetric_bytes, m.peer_events, m.world))};
}

std::span<const SymmetricProvider* const> symmetric_providers() { return kProviders; }

const SymmetricProvider* find_symmetric_provider(const std::string& name, bool group,
                                                 Status& status) {
  const auto serves = [group](const SymmetricProvider& p) {
    return group ? p.processes : p.threads;
  };
  std::string names;
  for (const SymmetricProvider* p : kProviders) {
    if (name == p->name && !serves(*p)) {
      status = Status::failure(
          fmt::format("peer memory '{}' is for ranks in {}", name,
                      group ? "one process" : "processes of their own (--processes, torchrun)"));
      return nullptr;
    }
    if (!serves(*p)) continue;
    if (name.empty() || name == p->name) return p;
    names += (names.empty() ? "" : ", ") + std::string(p->name);
  }
  status = Status::failure(fmt::format("no peer memory '{}': there are {}", name, names));
  return nullptr;
}

}  // namespace maco::runtime
