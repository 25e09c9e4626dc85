// symmetric_nccl.cpp: memory of NCCL's, registered as a window, through which every rank reaches
// the memory of all others.
#include <fmt/format.h>

#include <cstdint>

#include "runtime/host/nccl_api.h"
#include "runtime/host/rank_threads.h"
#include "runtime/host/symmetric.h"

namespace maco::runtime {
namespace {

// The needed part of a window's device structure: public in 2.28's headers, from which kernels take
// peers' addresses. Later versions have a host function for that.
struct WindowOnDevice {
  void* host;
  uint64_t base;  // of the first rank's memory
  int rank, world_rank;
  uint32_t stride_4g;  // from one rank's to the next, in units of 4 GiB
};
constexpr int kFirstWithWindows = 22800, kFirstWithPointers = 22900;
constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

class NcclWindows : public SymmetricMemory {
 public:
  explicit NcclWindows(const SymmetricRequest& request)
      : driver_(request.driver),
        group_(request.group),
        threads_(static_cast<int>(request.ranks.size())) {
    first_ = group_ ? group_->rank() : 0;
    world_ = group_ ? group_->size() : static_cast<int>(request.ranks.size());
    for (const SymmetricRank& place : request.ranks)
      ranks_.push_back({place, nullptr, nullptr, nullptr, {}});
  }
  ~NcclWindows() override {
    if (!nccl_ || !threads_.status()) return;
    const Nccl::Api& api = nccl_->api();
    threads_.run([&](int i) {
      Rank& r = ranks_[static_cast<size_t>(i)];
      if (driver_.context_set(r.place.context) != cuda::kSuccess) return Status{};
      // If a rank is gone, nothing can be done together.
      const bool alone = group_ && group_->broken();
      if (r.window && !alone) api.window_deregister(r.comm, r.window);
      if (r.comm) alone ? api.abort(r.comm) : api.destroy(r.comm);
      if (r.memory && !alone) api.memory_free(r.memory);
      return Status{};
    });
  }
  cuda::DevicePtr address(int owner, int viewer) const override {
    return ranks_[static_cast<size_t>(viewer - first_)].peers[static_cast<size_t>(owner)];
  }

  Status allocate(size_t bytes) {
    MACO_TRY(agree(open()));
    Nccl::Id id;
    MACO_TRY(nccl_->make_id(group_, id));
    MACO_TRY(everywhere([&](Rank& r, int rank) {
      NcclConfig config;  // nothing runs there: one SM is enough
      return check(nccl_->api().init(&r.comm, world_, id, rank, &config), rank, "join the ranks");
    }));
    const auto take = [&](Rank& r, int rank) {
      MACO_TRY(check(nccl_->api().memory_allocate(&r.memory, bytes), rank,
                     fmt::format("allocate {} bytes of symmetric memory", bytes)));
      MACO_TRY(driver_.check(driver_.fill(device(r.memory), 0, bytes, nullptr), "clear memory"));
      return driver_.check(driver_.stream_synchronize(nullptr), "clear memory");
    };
    MACO_TRY(everywhere(take));
    MACO_TRY(everywhere([&](Rank& r, int rank) {
      return check(
          nccl_->api().window_register(r.comm, r.memory, bytes, &r.window, kSymmetricWindow), rank,
          "make a window of symmetric memory");
    }));
    return everywhere([&](Rank& r, int rank) { return find_peers(r, rank); });
  }

 private:
  struct Rank {
    SymmetricRank place;
    void *comm, *memory, *window;
    std::vector<cuda::DevicePtr> peers;
  };
  static cuda::DevicePtr device(const void* at) {
    return static_cast<cuda::DevicePtr>(reinterpret_cast<uintptr_t>(at));
  }

  Status agree(const Status& mine) const { return group_ ? group_->agree(mine) : mine; }
  // Runs a step of all ranks at once, in all processes.
  Status everywhere(const std::function<Status(Rank&, int)>& step) {
    const auto here = [&](int i) {
      Rank& r = ranks_[static_cast<size_t>(i)];
      MACO_TRY(driver_.check(driver_.context_set(r.place.context), "switch devices"));
      return step(r, first_ + i);
    };
    return agree(all_of(threads_.run(here)));
  }
  Status check(int result, int rank, const std::string& what) const {
    if (result == 0) return {};
    return Status::failure(fmt::format("rank {}: NCCL {} could not {}: {}", rank, nccl_->version(),
                                       what, nccl_->api().error_string(result)));
  }

  Status open() {
    MACO_TRY(threads_.status());
    Status status;
    nccl_ = Nccl::load(status);
    if (!nccl_) return status;
    const Nccl::Api& api = nccl_->api();
    if (api.version_code < kFirstWithWindows || !api.window_register || !api.memory_allocate)
      return Status::failure(
          fmt::format("'{}' is NCCL {}, but windows of symmetric memory need 2.28 or later",
                      nccl_->path(), nccl_->version()));
    return {};
  }

  Status find_peers(Rank& r, int rank) {
    r.peers.assign(static_cast<size_t>(world_), 0);
    const Nccl::Api& api = nccl_->api();
    const std::string what = "map the memory of all ranks: not all reach each other";
    if (!r.window) return Status::failure(fmt::format("rank {}: NCCL could not {}", rank, what));
    if (api.version_code < kFirstWithPointers) {
      WindowOnDevice w{};
      MACO_TRY(driver_.check(driver_.to_host(&w, device(r.window), sizeof w, nullptr), "copy"));
      MACO_TRY(driver_.check(driver_.stream_synchronize(nullptr), "copy"));
      // Ranks that reach each other form one team; all ranks must be in it.
      if (w.rank != rank || w.world_rank != rank || w.base == 0)
        return Status::failure(fmt::format("rank {}: NCCL could not {}", rank, what));
      for (int peer = 0; peer < world_; ++peer)
        r.peers[static_cast<size_t>(peer)] =
            w.base + (static_cast<uint64_t>(peer) * w.stride_4g << 32);
      return {};
    }
    for (int peer = 0; peer < world_; ++peer) {
      void* at = nullptr;
      const int result = api.peer_pointer ? api.peer_pointer(r.window, 0, peer, &at) : 1;
      MACO_TRY(check(result, rank, what));
      if (!at)
        return Status::failure(fmt::format("rank {}: NCCL {} has no way to the memory of rank {}",
                                           rank, nccl_->version(), peer));
      r.peers[static_cast<size_t>(peer)] = device(at);
    }
    return {};
  }

  const cuda::Driver& driver_;
  Group* const group_;
  RankThreads threads_;
  std::shared_ptr<const Nccl> nccl_;
  int first_ = 0, world_ = 0;
  std::vector<Rank> ranks_;  // of this process
};

}  // namespace

extern const SymmetricProvider kNcclProvider;
const SymmetricProvider kNcclProvider = {"nccl", "windows of NCCL's memory, one rank a GPU", true,
                                         true, allocate_as<NcclWindows>};

}  // namespace maco::runtime
