#include "runtime/cpu/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "ir/manifest.h"
#include "ir/ranks.h"
#include "runtime/cpu/rank_zones.h"
#include "runtime/cpu/session_parts.h"
#include "runtime/host/symmetric.h"

namespace maco::runtime {

CpuSessionImpl::CpuSessionImpl(std::shared_ptr<CpuLibrary> library, size_t index,
                               ir::Manifest manifest, bool users_kernels,
                               const SessionOptions& options, std::unique_ptr<SharedMemory> shared)
    : CpuSession(std::move(manifest), options),
      shared_(std::move(shared)),
      library_(std::move(library)),
      index_(index),
      users_kernels_(users_kernels) {
  ranks_.reserve(static_cast<size_t>(here_.count));
  std::optional<size_t> fence;
  if (users_kernels_) fence = fence_bytes((manifest_.tensors.size() + 2) * ranks_.capacity());
  for (int r = here_.first; here_.has(r); ++r)
    ranks_.emplace_back(manifest_, r, options.check_access || users_kernels_, fence,
                        options_.profiled_tasks, shared_ ? shared_->of(r) : nullptr);
  for (RankState& rank : ranks_)
    for (size_t t = 0; options.allocate_tensors && t < manifest_.tensors.size(); ++t)
      rank.allocate(manifest_, t);
  for (const RankState& rank : ranks_) mend_zones(manifest_, rank);
  for (int r = 0; r < manifest_.world; ++r)
    symmetric_.push_back(shared_ ? shared_->of(r) : at(r).symmetric);
  for (RankState& rank : ranks_) {
    rank.launch.tensors = rank.tensor_pointers.data();
    rank.launch.arena = rank.arena.data();
    rank.launch.maps = rank.maps.data();
    rank.launch.counters = reinterpret_cast<u32*>(rank.counters.data());
    rank.launch.handed = reinterpret_cast<Handed*>(rank.handed.data());
    rank.launch.symmetric = symmetric_.data();
    rank.launch.control = reinterpret_cast<Control*>(
        rank.symmetric +
        control_offset(manifest_.symmetric_bytes, manifest_.peer_events, manifest_.world));
    rank.launch.reports = rank.reports.data();
    rank.launch.rank = rank.rank;
    rank.launch.timeout_ns = options_.timeout_ms * 1000000;
    rank.launch.cta_stamps = rank.stamps.ctas.data();
    rank.launch.task_stamps = rank.stamps.tasks.data();
    rank.launch.stamped_tasks = static_cast<u32>(rank.stamps.tasks.size());
  }
  if (manifest_.handed.empty()) return;
  std::vector<HandingRank> handing;
  for (const RankState& rank : ranks_) handing.push_back({rank.rank, &rank.launch});
  handed_ = std::make_unique<HandedOver>(manifest_, std::move(handing), options_.group);
}

Status CpuSessionImpl::bind_here(int rank, size_t tensor, void* memory) {
  // The session's own memory stays until the session ends, as others may have its address.
  at(rank).tensor_pointers[tensor] = memory;
  return {};
}

Status CpuSessionImpl::allocate_here(int rank, size_t tensor) {
  try {
    at(rank).allocate(manifest_, tensor);
  } catch (const std::bad_alloc&) {
    return Status::failure(
        fmt::format("not enough memory for tensor '{}'", manifest_.tensors[tensor].name));
  }
  return {};
}

Status CpuSessionImpl::place_tensors() {
  for (RankState& rank : ranks_) rank.make_maps(manifest_);
  return {};
}

Status CpuSessionImpl::write_here(int rank, size_t tensor, size_t offset, const void* data,
                                  size_t bytes) {
  std::memcpy(static_cast<char*>(at(rank).tensor_pointers[tensor]) + offset, data, bytes);
  return {};
}

Status CpuSessionImpl::read_here(int rank, size_t tensor, size_t offset, void* data, size_t bytes) {
  std::memcpy(data, static_cast<const char*>(at(rank).tensor_pointers[tensor]) + offset, bytes);
  return {};
}

Status CpuSessionImpl::stamps_here(std::vector<RankStamps>& ranks) {
  ranks.clear();
  for (const RankState& rank : ranks_) ranks.push_back(rank.stamps);
  return {};
}

Status CpuSessionImpl::set_regions(const ir::Program& program, KernelGuard* guard) {
  if (!options_.check_access)
    return Status::failure("the kernel was compiled without the check of accesses");
  if (program.world != manifest_.world || program.ctas != manifest_.ctas) {
    return Status::failure("the regions are those of another kernel: world or CTAs differ");
  }
  checker_ = std::make_unique<AccessChecker>(program, addresses(program), guard);
  checker_->set_red_zone([this](const void* address) { return red_zone_here(address); });
  guard_ = guard;
  return {};
}

std::vector<RankAddresses> CpuSessionImpl::addresses(const ir::Program& program) {
  std::vector<RankAddresses> addresses;
  for (RankState& rank : ranks_) {
    RankAddresses a{{}, rank.arena.data(), rank.symmetric};
    for (const ir::Buffer& buffer : program.buffers) {
      auto found =
          std::find_if(manifest_.tensors.begin(), manifest_.tensors.end(),
                       [&](const ir::ManifestTensor& t) { return t.name == buffer.tensor; });
      const bool own = buffer.kind == ir::BufferKind::Temp || buffer.kind == ir::BufferKind::Slot;
      a.tensors.push_back(
          own || found == manifest_.tensors.end()
              ? nullptr
              : static_cast<char*>(
                    rank.tensor_pointers[static_cast<size_t>(found - manifest_.tensors.begin())]));
    }
    addresses.push_back(std::move(a));
  }
  return addresses;
}

std::unique_ptr<CpuSession> make_cpu_session(std::shared_ptr<CpuLibrary> library, size_t index,
                                             const std::string& kernel_source,
                                             const SessionOptions& options, Status& status) {
  ir::ManifestResult parsed = ir::parse_manifest(kernel_source);
  if (!parsed.manifest) {
    status = Status::failure(parsed.error);
    return nullptr;
  }
  if (status = check_values(*parsed.manifest); !status) return nullptr;
  std::unique_ptr<SharedMemory> shared;
  if (options.group) {
    const ir::Manifest& m = *parsed.manifest;
    if (status = check_group(*options.group, m, options); !status) return nullptr;
    shared = SharedMemory::map(
        *options.group,
        static_cast<size_t>(symmetric_size(m.symmetric_bytes, m.peer_events, m.world)), status);
    if (!shared) return nullptr;
  }
  try {
    return std::make_unique<CpuSessionImpl>(std::move(library), index, std::move(*parsed.manifest),
                                            has_cuda_units(kernel_source), options,
                                            std::move(shared));
  } catch (const std::bad_alloc&) {
    status = Status::failure("not enough memory for the tensors of all ranks");
    return nullptr;
  }
}

std::unique_ptr<CpuSession> make_cpu_session(const std::string& kernel_source,
                                             const SessionOptions& options, Status& status) {
  ir::ManifestResult parsed = ir::parse_manifest(kernel_source);
  if (!parsed.manifest) {
    status = Status::failure(parsed.error);
    return nullptr;
  }
  if (status = check_values(*parsed.manifest); !status) return nullptr;
  const CpuCompileOptions compile = {.check_access = options.check_access,
                                     .verbose = options.verbose,
                                     .profile = options.profiled_tasks > 0};
  options.tell("compiling the kernel for the CPU");
  // In a group rank 0 compiles, and the others find it in the cache.
  Group* group = options.group;
  if (group && group->rank() != 0)
    if (status = group->meet(); !status) return nullptr;
  auto library = compile_cpu_kernels({kernel_source}, compile, status);
  if (group && group->rank() == 0) {
    if (const Status met = group->meet(); status && !met) status = met;
  }
  if (!library || !status) return nullptr;
  return make_cpu_session(std::move(library), 0, kernel_source, options, status);
}

}  // namespace maco::runtime
