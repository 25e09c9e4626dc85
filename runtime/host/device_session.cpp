#include "runtime/host/device_session.h"

#include <fmt/format.h>

#include <utility>

namespace maco::runtime {
namespace {

RanksHere ranks_here(const ir::Manifest& manifest, const SessionOptions& options) {
  if (options.group) return {options.group->rank(), 1};
  return {0, static_cast<int>(manifest.world)};
}

}  // namespace

DeviceSession::DeviceSession(ir::Manifest manifest, const SessionOptions& options)
    : manifest_(std::move(manifest)),
      options_(options),
      here_(ranks_here(manifest_, options)),
      epoch_(options.first_epoch) {}

// ---- tensors --------------------------------------------------------------------------------

Status DeviceSession::check_here(int rank) const {
  if (here_.has(rank)) return {};
  return Status::failure(fmt::format("rank {} runs in another process", rank));
}

Status DeviceSession::check_copy(int rank, size_t tensor, size_t offset, size_t bytes) const {
  MACO_TRY(alive());
  MACO_TRY(check_range(manifest_, rank, tensor, offset, bytes));
  MACO_TRY(check_here(rank));
  if (address(rank, tensor)) return {};
  return Status::failure(fmt::format("'{}' has no memory yet", manifest_.tensors[tensor].name));
}

Status DeviceSession::bind(int rank, size_t tensor, void* memory) {
  MACO_TRY(alive());
  MACO_TRY(check_binding(manifest_, rank, tensor, memory));
  MACO_TRY(check_here(rank));
  return bind_here(rank, tensor, memory);
}

Status DeviceSession::allocate(int rank, size_t tensor) {
  MACO_TRY(alive());
  MACO_TRY(check_range(manifest_, rank, tensor));
  MACO_TRY(check_here(rank));
  return address(rank, tensor) ? Status{} : allocate_here(rank, tensor);
}

Status DeviceSession::write_at(int rank, size_t tensor, size_t offset, const void* data,
                               size_t bytes) {
  MACO_TRY(check_copy(rank, tensor, offset, bytes));
  return bytes == 0 ? Status{} : write_here(rank, tensor, offset, data, bytes);
}

Status DeviceSession::read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) {
  MACO_TRY(check_copy(rank, tensor, offset, bytes));
  return bytes == 0 ? Status{} : read_here(rank, tensor, offset, data, bytes);
}

Status DeviceSession::stamps(std::vector<RankStamps>& ranks) {
  MACO_TRY(alive());
  if (options_.profiled_tasks == 0)
    return Status::failure("the kernel was compiled without stamps");
  MACO_TRY(stamps_here(ranks));
  if (!options_.group) return {};
  return gather_stamps(*options_.group, clock(), RankStamps{ranks.front()}, ranks);
}

// ---- launches -------------------------------------------------------------------------------

Status DeviceSession::set_values(const LaunchValues& values, const LaunchAddresses& addresses,
                                 TensorPlaces places) {
  MACO_TRY(alive());
  MACO_TRY(check_bound(*this, places));
  MACO_TRY(check_addresses(*this, addresses, places));
  MACO_TRY(place_tensors());
  for (int r = here_.first; here_.has(r); ++r) MACO_TRY(set_values_here(r, values, addresses));
  return {};
}

// ---- failures -------------------------------------------------------------------------------

Status DeviceSession::tell_outcome(const Outcome& mine, const LaunchValues& values,
                                   uint64_t patience_ms, std::vector<Outcome>& all,
                                   std::string& story) const {
  const Status met = exchange_outcomes(*options_.group, mine, values, patience_ms, all, story);
  return met ? met : lost(met, mine.report);
}

Status DeviceSession::lost(const Status& met, const Report& report) const {
  const std::string waited = explain_report(manifest_, here_.first, report, options_.timeout_ms);
  return Status::failure(met.message + (waited.empty() ? "" : "\n" + waited));
}

Status DeviceSession::failure_of(std::span<const Report> reports, const std::string& ahead,
                                 const std::string& behind) const {
  if (ahead.empty() && behind.empty() && !any_stopped(reports)) return {};
  std::string story = ahead;
  for (const std::string& part : {explain_reports(manifest_, reports, options_.timeout_ms), behind})
    if (!part.empty()) story += (story.empty() ? "" : "\n") + part;
  Status failed = Status::failure(std::move(story));
  failed.stopped = first_stopped(manifest_, reports);
  return failed;
}

}  // namespace maco::runtime
