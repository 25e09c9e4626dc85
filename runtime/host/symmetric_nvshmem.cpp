// symmetric_nvshmem.cpp: NVSHMEM's symmetric heap. Each rank has a process and a GPU of its own.
// Only the host library is used: kernels reach peers' memory at the addresses that it gives.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "runtime/host/library.h"
#include "runtime/host/symmetric.h"

namespace maco::runtime {
namespace {

// nvshmemx_uniqueid_v1, nvshmemx_uniqueid_args_v1, nvshmemx_init_args_v1, nvshmemx_init_attr_v1
struct UniqueId {
  int version = (1 << 16) + 128;
  char bytes[124] = {};
};
struct UniqueIdArguments {
  int version = (1 << 16) + 24;
  UniqueId* id = nullptr;
  int rank = -1, ranks = -1;
};
struct InitArguments {
  int version = (1 << 16) + 128;
  UniqueIdArguments unique_id;
  char rest[96] = {};
};
struct InitAttributes {
  int version = (1 << 16) + 144;
  void* mpi = nullptr;
  InitArguments arguments;
};
static_assert(sizeof(UniqueId) == 128 && sizeof(UniqueIdArguments) == 24 &&
              sizeof(InitArguments) == 128 && sizeof(InitAttributes) == 144);
constexpr unsigned kInitWithUniqueId = 1 << 3;  // NVSHMEMX_INIT_WITH_UNIQUEID

struct Api {
  Library library;
  int (*unique_id)(UniqueId*) = nullptr;
  int (*set_arguments)(int rank, int ranks, const UniqueId*, InitAttributes*) = nullptr;
  int (*init)(unsigned flags, InitAttributes*) = nullptr;
  void* (*allocate)(size_t) = nullptr;
  void (*free)(void*) = nullptr;
  void (*finalize)() = nullptr;
  void* (*peer)(const void*, int) = nullptr;
  bool bind_all() {
    return library.bind(unique_id, "nvshmemx_get_uniqueid") &&
           library.bind(set_arguments, "nvshmemx_set_attr_uniqueid_args") &&
           library.bind(init, "nvshmemx_hostlib_init_attr") &&
           library.bind(allocate, "nvshmem_malloc") && library.bind(free, "nvshmem_free") &&
           library.bind(finalize, "nvshmemx_hostlib_finalize") && library.bind(peer, "nvshmem_ptr");
  }
};

// NVSHMEM runs once in a process, for one rank on one GPU, while sessions use it: it has to end
// before the GPU's context does. Calls that all ranks make together are serialized.
struct Begun {
  std::mutex turn;
  Api api;
  int sessions = 0;
  bool failed = false;  // for good; NVSHMEM counts how often it has begun
  cuda::Device device = -1;
};
Begun& process() {
  static Begun begun;
  return begun;
}

class Nvshmem : public SymmetricMemory {
 public:
  explicit Nvshmem(const SymmetricRequest& request)
      : driver_(request.driver), group_(*request.group), here_(request.ranks[0]) {}
  ~Nvshmem() override {
    if (!counted_) return;
    Begun& p = process();
    const std::lock_guard lock(p.turn);
    // All ranks free it together, or none does; so all must end.
    std::vector<std::string> all;
    constexpr uint64_t kPatienceMs = 10000;
    const bool together = driver_.context_set(here_.context) == cuda::kSuccess &&
                          group_.exchange(memory_ ? "memory" : "", all, kPatienceMs);
    --p.sessions;
    p.failed = p.failed || !together;
    if (!together) return;
    if (memory_ && std::count(all.begin(), all.end(), all[0]) == group_.size()) p.api.free(memory_);
    if (p.sessions == 0) p.api.finalize();
  }
  cuda::DevicePtr address(int owner, int) const override {
    return peers_[static_cast<size_t>(owner)];
  }

  Status allocate(size_t bytes) {
    const std::lock_guard lock(process().turn);
    MACO_TRY(group_.agree(open()));
    MACO_TRY(begin());
    MACO_TRY(group_.agree(take(bytes)));
    return group_.agree(find_peers());
  }

 private:
  Status fail(const std::string& why) const {
    return Status::failure(fmt::format("rank {}: NVSHMEM {}", group_.rank(), why));
  }
  Status open() const {
    Begun& p = process();
    if (p.failed) return fail("has failed in this process before, and can't begin again");
    if (p.sessions > 0 && p.device != here_.device)
      return fail(fmt::format("runs on GPU {} in this process already", p.device));
    if (p.api.library) return {};
    const LibraryPlaces places = {.variable = "MACO_NVSHMEM",
                                  .names = {"libnvshmem_host.so.3", "libnvshmem_host.so"},
                                  .packages = {"nvidia/nvshmem/lib"}};
    p.api.library = Library::open(candidates_of(places), "nvshmemx_hostlib_init_attr");
    if (p.api.library && p.api.bind_all()) return {};
    const std::string why = p.api.library.why();
    p.api.library = {};
    const std::string chosen = chosen_place(places);
    return Status::failure(
        !why.empty() ? "NVSHMEM: " + why
        : chosen.empty()
            ? "NVSHMEM (libnvshmem_host.so.3) was not found: install it or 'pip install "
              "nvidia-nvshmem-cu13', or set MACO_NVSHMEM to the library"
            : fmt::format("NVSHMEM was not found where MACO_NVSHMEM says: '{}' is no usable "
                          "libnvshmem_host",
                          chosen));
  }

  Status begin() {
    Begun& p = process();
    std::vector<std::string> all;
    MACO_TRY(group_.exchange(std::to_string(p.sessions), all));
    for (const std::string& one : all)
      if (one != all[0]) return fail("is in use in some processes only");
    MACO_TRY(group_.agree(driver_.check(driver_.context_set(here_.context), "switch devices")));
    if (p.sessions > 0) {
      ++p.sessions;
      counted_ = true;
      return {};
    }
    // Its multicast isn't used.
    ::setenv("NVSHMEM_DISABLE_NVLS", "1", 0);
    UniqueId id;
    Status status;
    if (group_.rank() == 0 && p.api.unique_id(&id) != 0) status = fail("could not begin a group");
    MACO_TRY(group_.agree(status));
    MACO_TRY(group_.exchange(std::string(reinterpret_cast<const char*>(&id), sizeof id), all));
    if (all[0].size() == sizeof id) std::memcpy(&id, all[0].data(), sizeof id);
    InitAttributes attributes;
    if (p.api.set_arguments(group_.rank(), group_.size(), &id, &attributes) != 0 ||
        p.api.init(kInitWithUniqueId, &attributes) != 0)
      status = fail("could not join the ranks (NVSHMEM_DEBUG=INFO says more)");
    p.device = here_.device;
    p.failed = !status;
    status = group_.agree(status);
    counted_ = status.ok;
    p.sessions += counted_ ? 1 : 0;
    return status;
  }

  Status take(size_t bytes) {
    memory_ = process().api.allocate(bytes);
    if (!memory_)
      return fail(
          fmt::format("has no {} bytes of symmetric memory (NVSHMEM_SYMMETRIC_SIZE?)", bytes));
    const auto at = static_cast<cuda::DevicePtr>(reinterpret_cast<uintptr_t>(memory_));
    MACO_TRY(driver_.check(driver_.fill(at, 0, bytes, nullptr), "clear symmetric memory"));
    return driver_.check(driver_.stream_synchronize(nullptr), "clear symmetric memory");
  }

  Status find_peers() {
    for (int rank = 0; rank < group_.size(); ++rank) {
      const void* const at = process().api.peer(memory_, rank);
      if (!at)
        return fail(
            fmt::format("has no way to the memory of rank {} but messages, which kernels can't "
                        "use: use backend "
                        "'nccl'",
                        rank));
      peers_.push_back(static_cast<cuda::DevicePtr>(reinterpret_cast<uintptr_t>(at)));
    }
    return {};
  }

  const cuda::Driver& driver_;
  Group& group_;
  const SymmetricRank here_;
  bool counted_ = false;  // as one of the process's sessions
  void* memory_ = nullptr;
  std::vector<cuda::DevicePtr> peers_;
};

}  // namespace

extern const SymmetricProvider kNvshmemProvider;
const SymmetricProvider kNvshmemProvider = {"nvshmem", "NVSHMEM's symmetric heap, a process a rank",
                                            false, true, allocate_as<Nvshmem>};

}  // namespace maco::runtime
