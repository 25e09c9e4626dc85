// symmetric_p2p.cpp: all ranks in this process; each device's kernels reach the others' memory by
// peer access. Addresses are the same on all devices (unified addressing).
#include <fmt/format.h>

#include "runtime/host/symmetric.h"

namespace maco::runtime {
namespace {

class PeerToPeer : public SymmetricMemory {
 public:
  explicit PeerToPeer(const SymmetricRequest& request)
      : driver_(request.driver),
        ranks_(request.ranks.begin(), request.ranks.end()),
        blocks_(request.ranks.size()) {}
  ~PeerToPeer() override {
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (blocks_[r] && driver_.context_set(ranks_[r].context) == cuda::kSuccess)
        driver_.free(blocks_[r]);
  }
  cuda::DevicePtr address(int owner, int) const override {
    return blocks_[static_cast<size_t>(owner)];
  }

  Status enable(const SymmetricRank& from, const SymmetricRank& to) {
    if (from.device == to.device) return {};
    int can = 0;
    MACO_TRY(
        driver_.check(driver_.can_access_peer(&can, from.device, to.device), "query peer access"));
    if (!can)
      return Status::failure(fmt::format(
          "GPU {} has no peer access to the memory of GPU {} (see 'nvidia-smi topo -p2p r')",
          from.device_index, to.device_index));
    MACO_TRY(driver_.check(driver_.context_set(from.context), "switch devices"));
    const cuda::Result result = driver_.enable_peer(to.context, 0);
    if (result == cuda::kPeerAccessAlreadyEnabled) return {};
    return driver_.check(result, fmt::format("open the memory of GPU {} to GPU {}", to.device_index,
                                             from.device_index));
  }

  Status allocate(size_t bytes) {
    for (const SymmetricRank& from : ranks_)
      for (const SymmetricRank& to : ranks_) MACO_TRY(enable(from, to));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      MACO_TRY(driver_.check(driver_.context_set(ranks_[r].context), "switch devices"));
      MACO_TRY(driver_.check(
          driver_.allocate(&blocks_[r], bytes),
          fmt::format("allocate {} bytes of symmetric memory for rank {}", bytes, r)));
      MACO_TRY(
          driver_.check(driver_.fill(blocks_[r], 0, bytes, nullptr), "clear symmetric memory"));
      MACO_TRY(driver_.check(driver_.stream_synchronize(nullptr), "clear symmetric memory"));
    }
    return {};
  }

 private:
  const cuda::Driver& driver_;
  std::vector<SymmetricRank> ranks_;
  std::vector<cuda::DevicePtr> blocks_;
};

}  // namespace

extern const SymmetricProvider kPeerToPeerProvider;
const SymmetricProvider kPeerToPeerProvider = {
    "threads", "peer access between the GPUs of one process", true, false, allocate_as<PeerToPeer>};

}  // namespace maco::runtime
