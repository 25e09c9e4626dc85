#include "runtime/host/cuda_session_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/host/cuda_session.h"
#include "runtime/host/cuda_writer.h"
#include "runtime/host/jit.h"
#include "runtime/host/symmetric_pool.h"

namespace maco::runtime {

namespace {

// The GPU of this process's first rank.
size_t first_gpu(const SessionOptions& options, size_t gpus) {
  if (options.gpu >= 0) return static_cast<size_t>(options.gpu);
  if (!options.group) return 0;
  return static_cast<size_t>(options.group->rank() / options.ranks_per_gpu) % gpus;
}

// Reports what is wrong before anything is compiled. Sets `as_ptx` if PTX is needed instead of a
// cubin, because a device is newer than `arch`.
Status check_devices(const cuda::Driver& driver, const ir::Manifest& m, const Arch& arch,
                     const SessionOptions& options, bool& as_ptx) {
  const int64_t needed =
      options.group ? 1 : (m.world + options.ranks_per_gpu - 1) / options.ranks_per_gpu;
  const auto found = static_cast<int64_t>(driver.devices().size());
  if (needed > found)
    return Status::failure(
        fmt::format("{} ranks with {} on a GPU need {} GPUs, but {} {} found (--ranks-per-gpu={} "
                    "would put them there)",
                    m.world, options.ranks_per_gpu, needed, found, found == 1 ? "was" : "were",
                    (m.world + found - 1) / found));
  const size_t begin = first_gpu(options, driver.devices().size());
  if (begin + static_cast<size_t>(needed) > driver.devices().size())
    return Status::failure(fmt::format("there is no GPU {}: this machine has {}",
                                       begin + static_cast<size_t>(needed) - 1, found));
  for (size_t i = begin; i < begin + static_cast<size_t>(needed); ++i) {
    const cuda::DeviceInfo& d = driver.devices()[i];
    as_ptx = as_ptx || !runs_on(arch, d.major, d.minor);
    if (!ptx_runs_on(arch, d.major, d.minor))
      return Status::failure(
          fmt::format("the kernel was compiled for {}, but GPU {} ({}) is sm_{}{}", m.target, i,
                      d.name, d.major, d.minor));
  }
  return {};
}

}  // namespace

CudaSession::~CudaSession() {
  // Others may still write into memory here, unless this has waited for them.
  if (opened_ && (enqueued_ || !options_.group)) static_cast<void>(wait());
  const cuda::ContextGuard guard(*driver_);
  if (give_up_) {  // kernels may still run, and freeing anything would wait for them
    for (auto& rank : ranks_) rank.release()->abandon();
    static_cast<void>(symmetric_.release());
    static_cast<void>(driver_.release());
    return;
  }
  if (gate_) driver_->host_free(gate_);
  symmetric_.reset();
  ranks_.clear();
}

// Finds where the ranks of this process run, and how many share each GPU.
Status CudaSession::open_ranks() {
  const auto& devices = driver_->devices();
  const int world = static_cast<int>(manifest_.world), per_gpu = options_.ranks_per_gpu;
  if (!options_.group) {
    for (int r = 0; r < world; ++r) {
      const int sharing = std::min(per_gpu, world - r / per_gpu * per_gpu);
      ranks_.push_back(std::make_unique<CudaRank>(
          *driver_, manifest_, options_, r,
          devices[first_gpu(options_, devices.size()) + static_cast<size_t>(r / per_gpu)],
          sharing));
    }
    return {};
  }
  // A process may see all GPUs, or only its own.
  const cuda::DeviceInfo& device = devices[first_gpu(options_, devices.size())];
  cuda::Uuid uuid{};
  MACO_TRY(
      agree(driver_->check(driver_->device_uuid(&uuid, device.device), "ask a GPU who it is")));
  gpu_.assign(uuid, sizeof uuid);
  std::vector<std::string> all;
  MACO_TRY(options_.group->exchange(gpu_, all));
  for (int r = 0; r < world; ++r) {
    const auto sharing = std::count(all.begin(), all.end(), all[static_cast<size_t>(r)]);
    if (sharing > per_gpu)
      return Status::failure(
          fmt::format("{} ranks are on the GPU of rank {}, with {} on a GPU: not all GPUs are seen "
                      "(CUDA_VISIBLE_DEVICES?), or there are too few (--ranks-per-gpu={} would put "
                      "them there)",
                      sharing, r, per_gpu, sharing));
  }
  const auto sharing = std::count(all.begin(), all.end(), all[static_cast<size_t>(here_.first)]);
  ranks_.push_back(std::make_unique<CudaRank>(*driver_, manifest_, options_, here_.first, device,
                                              static_cast<int>(sharing)));
  return {};
}

// In one process or several: rank 0's id goes to all, and every rank joins with it.
Status CudaSession::join_nccl() {
  Status status;
  nccl_ = Nccl::load(status);
  MACO_TRY(agree(status));
  MACO_TRY(everywhere([&](int r) { return at(r).prepare_hand_over(*nccl_); }));
  bool shared = false;
  MACO_TRY(have_communicators(shared));
  if (shared) {
    const Status connected = everywhere([&](int r) { return at(r).connect(nccl_, nullptr); });
    communicators_.clear();
    return connected;
  }
  communicators_.clear();
  Nccl::Id id;
  MACO_TRY(nccl_->make_id(options_.group, id));
  return everywhere([&](int r) { return at(r).connect(nccl_, &id); });
}

// Whether all ranks have ends of one communicator, made by another session.
Status CudaSession::have_communicators(bool& all) {
  std::vector<std::string> ids;
  communicators_.clear();
  for (const auto& rank : ranks_) {
    communicators_.push_back(Communicator::find(rank->communicator_key()));
    const auto& own = communicators_.back();
    ids.push_back(own ? std::string(own->id().begin(), own->id().end()) : "");
  }
  if (options_.group) {
    const std::string mine = ids[0];
    MACO_TRY(options_.group->exchange(mine, ids));
  }
  all = !ids[0].empty() &&
        std::all_of(ids.begin(), ids.end(), [&](const std::string& id) { return id == ids[0]; });
  return {};
}

Status CudaSession::prepare(const std::string& image) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(agree(threads_.status()));
  MACO_TRY(open_ranks());
  // Every step ends on all ranks before the next one begins on any.
  MACO_TRY(everywhere([&](int r) { return at(r).open(); }));
  MACO_TRY(everywhere([&](int r) { return at(r).load(image); }));
  MACO_TRY(everywhere([&](int r) { return at(r).check_free_memory(); }));
  MACO_TRY(everywhere([&](int r) { return at(r).allocate(); }));
  const SymmetricLayout layout = symmetric_layout(manifest_);
  std::vector<SymmetricRank> places;
  for (auto& rank : ranks_) places.push_back(rank->place());
  Status status;
  // What the graph's backend asks for, unless the caller names something.
  std::string memory = options_.peer_memory;
  if (memory.empty() && manifest_.backend == "nvshmem") memory = manifest_.backend;
  if (manifest_.world == 1) memory.clear();
  const SymmetricProvider* provider =
      find_symmetric_provider(memory, options_.group != nullptr, status);
  MACO_TRY(agree(status));
  symmetric_ = allocate_pooled(*provider, {*driver_, places, layout.bytes, options_.group},
                               options_.group ? options_.group->processes() : "", status);
  if (!symmetric_) return status;
  MACO_TRY(everywhere([&](int r) { return at(r).bind(*symmetric_, layout); }));
  if (!manifest_.handed.empty()) MACO_TRY(join_nccl());

  MACO_TRY(agree(make_gate()));
  MACO_TRY(reset());
  opened_ = true;
  return {};
}

Status CudaSession::make_gate() {
  MACO_TRY(driver_->check(driver_->context_set(ranks_[0]->place().context), "use a GPU"));
  void* host = nullptr;
  MACO_TRY(driver_->check(
      driver_->host_allocate(&host, sizeof(u32), cuda::kHostPortable | cuda::kHostMapped),
      "allocate host memory"));
  gate_ = static_cast<uint32_t*>(host);
  *gate_ = 0;
  return driver_->check(driver_->host_pointer(&gate_address_, host, 0), "map host memory");
}

Status CudaSession::bind_here(int rank, size_t tensor, void* memory) {
  at(rank).bind_tensor(tensor, static_cast<cuda::DevicePtr>(reinterpret_cast<uintptr_t>(memory)));
  return place_for_graphs();
}

Status CudaSession::allocate_here(int rank, size_t tensor) {
  const cuda::ContextGuard guard(*driver_);
  return at(rank).allocate_tensor(tensor);
}

Status CudaSession::place_tensors() {
  for (auto& rank : ranks_) MACO_TRY(rank->place_tensors());
  return {};
}

Status CudaSession::write_here(int rank, size_t tensor, size_t offset, const void* data,
                               size_t bytes) {
  const cuda::ContextGuard guard(*driver_);
  return at(rank).write(tensor, offset, data, bytes);
}

Status CudaSession::read_here(int rank, size_t tensor, size_t offset, void* data, size_t bytes) {
  const cuda::ContextGuard guard(*driver_);
  return at(rank).read(tensor, offset, data, bytes);
}

std::unique_ptr<TensorWriter> CudaSession::make_writer(size_t staging, Status& status) {
  status = alive();
  if (!status) return nullptr;
  auto writer = std::make_unique<CudaWriter>(*driver_, here_.first);
  for (const auto& rank : ranks_)
    if (status) status = writer->add(*rank);
  if (status) status = writer->allocate(staging);
  return status ? std::move(writer) : nullptr;
}

Status CudaSession::stamps_here(std::vector<RankStamps>& ranks) {
  const cuda::ContextGuard guard(*driver_);
  ranks.assign(ranks_.size(), {});
  Status read;
  for (size_t r = 0; r < ranks_.size() && read; ++r) read = ranks_[r]->read_stamps(ranks[r]);
  return agree(read);
}

std::unique_ptr<Session> make_cuda_session(const std::string& kernel_source,
                                           const SessionOptions& options, Status& status) {
  auto fail = [&status](std::string why) {
    status = Status::failure(std::move(why));
    return nullptr;
  };
  ir::ManifestResult parsed = ir::parse_manifest(kernel_source);
  if (!parsed.manifest) return fail(parsed.error);
  const ir::Manifest& m = *parsed.manifest;
  const std::optional<Arch> arch = parse_arch(m.target);
  if (!arch)
    return fail(
        fmt::format("the kernel was compiled for '{}', which is no NVIDIA GPU: compile it with "
                    "--target=sm_90a, say",
                    m.target));
  if (!m.handed.empty() && options.ranks_per_gpu > 1)
    return fail(
        fmt::format("'{}' is to be handed over to NCCL, which takes one rank a GPU, not {}: use "
                    "backend 'p2p'",
                    m.handed[0].op, options.ranks_per_gpu));
  if (options.ranks_per_gpu < 1) return fail("a GPU must have at least one rank");
  status = check_values(m);
  if (status && options.group) status = check_group(*options.group, m, options);
  if (!status) return nullptr;

  std::unique_ptr<cuda::Driver> driver = cuda::Driver::load(status);
  bool as_ptx = false;
  if (driver) status = check_devices(*driver, m, *arch, options, as_ptx);
  std::string image;
  const auto compile = [&] {
    options.tell("compiling the kernel with NVRTC");
    const std::string number = m.target.substr(m.target.find('_') + 1);
    status = compile_kernel(kernel_source, (as_ptx ? "compute_" : "sm_") + number, options.verbose,
                            image, options.profiled_tasks > 0);
  };
  // In a group rank 0 compiles, and the others find the result in the cache.
  Group* const group = options.group;
  if (status && (!group || group->rank() == 0)) compile();
  if (group) status = group->agree(status);
  if (status && group && group->rank() != 0) compile();
  if (group && status) status = group->agree(status);
  if (!status) return nullptr;
  auto session =
      std::make_unique<CudaSession>(std::move(driver), std::move(*parsed.manifest), options);
  options.tell("loading the kernel on all ranks");
  status = session->prepare(image);
  if (!status) return nullptr;
  return session;
}

}  // namespace maco::runtime
