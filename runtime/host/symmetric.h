// Symmetric memory: of the same size on every rank, and reachable by all ranks' kernels.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ir/manifest.h"
#include "runtime/host/driver.h"
#include "runtime/host/group.h"
#include "runtime/host/session.h"

namespace maco::runtime {

/// The layout of a rank's symmetric memory: slots, words of peer events, Control.
struct SymmetricLayout {
  size_t events = 0;   // offset of peer_events x world words
  size_t control = 0;  // offset of Control, a multiple of 256
  size_t bytes = 0;    // of all of it
};
SymmetricLayout symmetric_layout(const ir::Manifest& manifest);

/// The memory of all ranks, freed with the object. No kernel may use it then.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  /// The address of `owner`'s memory for kernels on `viewer`'s device.
  virtual cuda::DevicePtr address(int owner, int viewer) const = 0;
};

/// Where a rank of this process runs.
struct SymmetricRank {
  cuda::Device device = 0;
  int device_index = 0;
  cuda::Context context = nullptr;
};

/// What a provider has to allocate.
struct SymmetricRequest {
  const cuda::Driver& driver;
  std::span<const SymmetricRank> ranks;  // of this process, by rank
  size_t bytes = 0;                      // of each rank
  Group* group = nullptr;                // the other processes, which ask at the same time; or null
};

/// A way to get symmetric memory. To add one, write a file that defines it, and add its line in
/// symmetric.cpp.
struct SymmetricProvider {
  const char* name;
  const char* summary;
  bool threads, processes;  // whether ranks may be threads of one process; processes
  /// Allocates zeroed memory for all ranks. Returns null with the reason if it fails (for example
  /// the two GPUs that can't reach each other). In a group it fails on all ranks or on none.
  std::unique_ptr<SymmetricMemory> (*allocate)(const SymmetricRequest& request, Status& status);
};

/// SymmetricProvider::allocate by a class that takes the request and has allocate(bytes).
template <class Memory>
std::unique_ptr<SymmetricMemory> allocate_as(const SymmetricRequest& request, Status& status) {
  auto memory = std::make_unique<Memory>(request);
  status = memory->allocate(request.bytes);
  if (!status) return nullptr;
  return memory;
}

std::span<const SymmetricProvider* const> symmetric_providers();
/// The provider of that name or, for "", the first that works in one process or in a group; null
/// with the reason if there is none.
const SymmetricProvider* find_symmetric_provider(const std::string& name, bool group,
                                                 Status& status);

}  // namespace maco::runtime
