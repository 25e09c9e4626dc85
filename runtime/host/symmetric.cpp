#include "runtime/host/symmetric.h"

#include "runtime/host/abi.h"

namespace maco::runtime {

extern const SymmetricProvider kPeerToPeerProvider;  // symmetric_p2p.cpp

namespace {

const SymmetricProvider* const kProviders[] = {
    &kPeerToPeerProvider,
};

}  // namespace

SymmetricLayout symmetric_layout(const ir::Manifest& m) {
  return {static_cast<size_t>(m.symmetric_bytes),
          static_cast<size_t>(control_offset(m.symmetric_bytes, m.peer_events, m.world)),
          static_cast<size_t>(symmetric_size(m.symmetric_bytes, m.peer_events, m.world))};
}

std::span<const SymmetricProvider* const> symmetric_providers() { return kProviders; }

}  // namespace maco::runtime
