// Symmetric memory: of the same size on every rank, and reachable by the kernels of all.
#pragma once

#include <memory>
#include <span>

#include "ir/manifest.h"
#include "runtime/host/driver.h"
#include "runtime/host/session.h"

namespace maco::runtime {

/// The layout of a rank's symmetric memory: slots, words of peer events, Control.
struct SymmetricLayout {
  size_t events = 0;   // offset of peer_events x world words
  size_t control = 0;  // offset of Control, a multiple of 256
  size_t bytes = 0;    // of the whole
};
SymmetricLayout symmetric_layout(const ir::Manifest& manifest);

/// The memory of all ranks; freed with the object, when no kernel uses it any more.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  /// The address of `owner`'s memory for kernels on `viewer`'s device.
  virtual cuda::DevicePtr address(int owner, int viewer) const = 0;
};

/// Where a rank runs.
struct SymmetricRank {
  cuda::Device device = 0;
  int device_index = 0;
  cuda::Context context = nullptr;
};

/// A way to get such memory. Adding one: a file that defines it, and its line in symmetric.cpp.
struct SymmetricProvider {
  const char* name;
  const char* summary;
  /// Zeroed memory for all ranks, or null with the reason (which names the two GPUs that can't
  /// reach each other, say).
  std::unique_ptr<SymmetricMemory> (*allocate)(const cuda::Driver& driver,
                                               std::span<const SymmetricRank> ranks, size_t bytes,
                                               Status& status);
};

/// The first is the one that sessions use.
std::span<const SymmetricProvider* const> symmetric_providers();

}  // namespace maco::runtime
