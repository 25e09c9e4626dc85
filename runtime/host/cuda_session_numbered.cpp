#include "runtime/host/cuda_session_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace maco::runtime {

Status CudaSession::number() {
  const auto most = launches_between_resets(manifest_);
  const auto left = static_cast<uint32_t>(std::max<int64_t>(most - launched_, 0));
  MACO_TRY(on_all([&](int r) { return at(r).number(epoch_, left); }));
  numbered_ = true;
  return {};
}

Status CudaSession::renew() {
  uint32_t left = least_left_;
  if (options_.group) {
    if (!any_numbered_) return {};
    Status mine = numbered_ ? Status{} : number();
    if (mine) mine = place_for_graphs();
    MACO_TRY(agree(mine));
  } else {
    if (!numbered_) return {};
    MACO_TRY(place_for_graphs());
    MACO_TRY(at(here_.first).read_left(left));
  }
  if (left > launches_between_resets(manifest_) / 2) return {};
  MACO_TRY(agree(synchronize()));
  return reset();
}

Status CudaSession::place_for_graphs() {
  if (!numbered_ || enqueued_ || !check_bound(*this)) return {};
  const cuda::ContextGuard guard(*driver_);
  return place_tensors();
}

Status CudaSession::are_captured(std::span<void* const> streams, bool& captured) {
  size_t count = 0;
  for (size_t r = 0; r < streams.size(); ++r) {
    bool one = false;
    MACO_TRY(ranks_[r]->is_capturing(static_cast<cuda::Stream>(streams[r]), one));
    count += one ? 1 : 0;
  }
  captured = count > 0;
  if (count == 0 || count == streams.size()) return {};
  return Status::failure(
      fmt::format("{} of {} streams are being captured: a launch becomes part of graphs on all "
                  "ranks or on none",
                  count, streams.size()));
}

Status CudaSession::refuse_handed(bool captured, const LaunchAddresses& addresses) const {
  for (const ir::ManifestHanded& h : manifest_.handed) {
    if (captured)
      return Status::failure(
          fmt::format("'{}' is handed over to NCCL, which can't be captured by this version: "
                      "launch it, or use backend 'p2p'",
                      h.op));
    if (!addresses.empty() && h.value >= 0)
      return Status::failure(
          fmt::format("how much '{}' hands over to NCCL depends on dims or scalars, which have to "
                      "come from the host then",
                      h.op));
  }
  return {};
}

}  // namespace maco::runtime
