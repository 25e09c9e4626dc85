// cuda_rank.cpp: a rank is opened and gets memory, and its tensors are filled. Its launches are in
// cuda_rank_launch.cpp.
#include "runtime/host/cuda_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/host/device_pointer.h"
#include "runtime/host/profile.h"

namespace maco::runtime {

namespace {

// The granularity of allocations.
size_t block_bytes(int64_t bytes) { return std::max<size_t>(static_cast<size_t>(bytes), 256); }

}  // namespace

size_t device_bytes(const ir::Manifest& m, const SessionOptions& options) {
  constexpr int64_t kAddress = sizeof(cuda::DevicePtr);
  size_t bytes = symmetric_layout(m).bytes + block_bytes(m.arena_bytes) +
                 block_bytes(m.local_events * int64_t{sizeof(u32)}) +
                 block_bytes(static_cast<int64_t>(m.tensors.size()) * kAddress) +
                 block_bytes(m.world * kAddress) + block_bytes(m.ctas * sizeof(LaunchState));
  if (!m.maps.empty())
    bytes += block_bytes(static_cast<int64_t>(m.maps.size() * sizeof(TensorMap)));
  if (options.allocate_tensors)
    for (const ir::ManifestTensor& t : m.tensors)
      bytes += block_bytes(t.max_elements * ir::size_of(t.dtype));
  if (options.profiled_tasks > 0)
    bytes += block_bytes(m.ctas * int64_t{sizeof(CtaStamps)}) +
             block_bytes(options.profiled_tasks * int64_t{sizeof(TaskStamps)});
  return bytes;
}

Status check_memory(const ir::Manifest& m, int ranks, const cuda::DeviceInfo& device, size_t free,
                    size_t total, const SessionOptions& options) {
  const size_t needed = static_cast<size_t>(ranks) * device_bytes(m, options);
  if (needed <= free) return {};
  return Status::failure(
      fmt::format("{} rank{} need{} {} bytes of GPU {} ({}), but {} of its {} are free", ranks,
                  ranks == 1 ? "" : "s", ranks == 1 ? "s" : "", needed, device.index, device.name,
                  free, total));
}

CudaRank::CudaRank(const cuda::Driver& driver, const ir::Manifest& manifest,
                   const SessionOptions& options, int rank, const cuda::DeviceInfo& device,
                   int sharing)
    : driver_(driver),
      manifest_(manifest),
      options_(options),
      rank_(rank),
      device_(device),
      sharing_(sharing) {}

CudaRank::~CudaRank() {
  if (abandoned_) {
    static_cast<void>(nccl_.release());
    static_cast<void>(tables_.release());
  }
  if (abandoned_ || !context_ || driver_.context_set(context_) != cuda::kSuccess) return;
  nccl_.reset();
  tables_.reset();
  for (cuda::Event event : events_) driver_.event_destroy(event);
  if (last_) driver_.event_destroy(last_);
  for (cuda::DevicePtr memory : memory_) driver_.free(memory);
  if (reports_) driver_.host_free(reports_);
  if (words_) driver_.host_free(words_);
  if (stream_) driver_.stream_destroy(stream_);
  if (side_) driver_.stream_destroy(side_);
  if (module_) driver_.module_unload(module_);
  driver_.context_set(nullptr);
  driver_.context_release(device_.device);
}

Status CudaRank::of_rank(Status status) const {
  if (!status)
    status.message = fmt::format("rank {} on GPU {}: {}", rank_, device_.index, status.message);
  return status;
}

Status CudaRank::check(cuda::Result result, const std::string& what) const {
  return of_rank(driver_.check(result, what));
}

Status CudaRank::make_current() const {
  // Allowed whatever the application captures meanwhile, on this or another thread.
  int mode = cuda::kCaptureRelaxed;
  driver_.exchange_capture_mode(&mode);
  return check(driver_.context_set(context_), "use its context");
}

Status CudaRank::open() {
  MACO_TRY(check(driver_.context_retain(&context_, device_.device), "open the GPU"));
  MACO_TRY(make_current());
  MACO_TRY(check(driver_.stream_create(&stream_, cuda::kStreamNonBlocking), "make a stream"));
  return check(driver_.stream_create(&side_, cuda::kStreamNonBlocking), "make a stream");
}

Status CudaRank::load(const std::string& image) {
  MACO_TRY(make_current());
  MACO_TRY(check(driver_.module_load(&module_, image.data()),
                 fmt::format("load the kernel (driver for CUDA {}.{})", driver_.version() / 1000,
                             driver_.version() % 1000 / 10)));
  MACO_TRY(check(driver_.module_function(&kernel_, module_, "maco_kernel"),
                 "find 'maco_kernel' in the kernel"));
  MACO_TRY(check(driver_.module_function(&reset_, module_, "maco_reset"),
                 "find 'maco_reset' in the kernel"));
  // Code for earlier architectures doesn't wait for the launch before it, and earlier drivers don't
  // capture such launches. They also don't suit a launch that needs SMs besides its own while it
  // runs, of another rank or of NCCL: the next launch's CTAs would occupy them.
  constexpr int kWaits = 90, kCaptures = 12040;
  int code = 0;
  MACO_TRY(
      check(driver_.function_get(&code, cuda::kFunctionPtxVersion, kernel_), "query the kernel"));
  early_ =
      code >= kWaits && driver_.version() >= kCaptures && sharing_ == 1 && manifest_.handed.empty();
  return check_residency();
}

Status CudaRank::check_residency() const {
  const int threads = static_cast<int>(manifest_.threads());
  const int shared = static_cast<int>(manifest_.shared_bytes);
  const std::string gpu = fmt::format("GPU {} ({})", device_.index, device_.name);
  int max_threads = 0, static_shared = 0, registers = 0, spilled = 0;
  MACO_TRY(check(driver_.function_get(&max_threads, cuda::kFunctionMaxThreads, kernel_),
                 "query the kernel"));
  MACO_TRY(check(driver_.function_get(&static_shared, cuda::kFunctionStaticShared, kernel_),
                 "query the kernel"));
  MACO_TRY(check(driver_.function_get(&registers, cuda::kFunctionRegisters, kernel_),
                 "query the kernel"));
  MACO_TRY(check(driver_.function_get(&spilled, cuda::kFunctionLocalBytes, kernel_),
                 "query the kernel"));
  if (threads > max_threads)
    return Status::failure(fmt::format(
        "the kernel needs CTAs of {} threads, but with its {} registers {} runs at most {}",
        threads, registers, gpu, max_threads));
  if (shared > device_.shared_bytes - static_shared)
    return Status::failure(
        fmt::format("the kernel needs {} bytes of shared memory in a CTA, but {} has {}",
                    shared + static_shared, gpu, device_.shared_bytes));
  MACO_TRY(check(driver_.function_set(kernel_, cuda::kFunctionMaxDynamicShared, shared),
                 fmt::format("give the kernel {} bytes of shared memory", shared)));
  int per_sm = 0;
  MACO_TRY(check(driver_.occupancy(&per_sm, kernel_, threads, static_cast<size_t>(shared)),
                 "compute occupancy"));
  const int64_t needed = manifest_.ctas * sharing_;
  int64_t capacity = int64_t{per_sm} * device_.multiprocessors;
  // CTAs of a cluster share a part of the GPU, which may not have SMs for whole clusters only.
  int cluster = 0;
  MACO_TRY(check(driver_.function_get(&cluster, cuda::kFunctionClusterWidth, kernel_),
                 "query the kernel"));
  if (cluster > 1) {
    cuda::LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(manifest_.ctas);
    shape.block[0] = static_cast<unsigned>(threads);
    shape.shared_bytes = static_cast<unsigned>(shared);
    int clusters = 0;
    MACO_TRY(check(driver_.clusters(&clusters, kernel_, &shape), "compute occupancy"));
    capacity = std::min(capacity, int64_t{clusters} * cluster);
  }
  if (options_.verbose && rank_ == 0)
    fmt::print(stderr,
               "maco: {} CTAs of {} threads, {} registers, {} bytes spilled, {} + {} bytes of "
               "shared memory; {} holds {}\n",
               manifest_.ctas, threads, registers, spilled, shared, static_shared, gpu, capacity);
  if (needed <= capacity) return {};
  return Status::failure(
      fmt::format("{} CTAs ({} rank{} of {}) must be resident at once, but {} holds {} ({} SMs, {} "
                  "CTA{} on each): compile for fewer SMs{}",
                  needed, sharing_, sharing_ == 1 ? "" : "s", manifest_.ctas, gpu, capacity,
                  device_.multiprocessors, per_sm, per_sm == 1 ? "" : "s",
                  sharing_ > 1 ? " or put fewer ranks on a GPU" : ""));
}

Status CudaRank::check_free_memory() const {
  MACO_TRY(make_current());
  size_t free = 0, total = 0;
  MACO_TRY(check(driver_.memory_info(&free, &total), "ask for its free memory"));
  return check_memory(manifest_, sharing_, device_, free, total, options_);
}

Status CudaRank::allocate_device(cuda::DevicePtr& memory, size_t bytes, const std::string& what) {
  bytes = block_bytes(static_cast<int64_t>(bytes));
  MACO_TRY(check(driver_.allocate(&memory, bytes),
                 fmt::format("allocate {} bytes for {}", bytes, what)));
  memory_.push_back(memory);
  return check(driver_.fill(memory, 0, bytes, stream_), "clear memory");
}

Status CudaRank::copy_pointers(cuda::DevicePtr to, const std::vector<cuda::DevicePtr>& pointers) {
  if (pointers.empty()) return {};
  MACO_TRY(check(
      driver_.to_device(to, pointers.data(), pointers.size() * sizeof(cuda::DevicePtr), stream_),
      "copy"));
  return check(driver_.stream_synchronize(stream_), "copy");
}

Status CudaRank::allocate() {
  MACO_TRY(make_current());
  tensors_.resize(manifest_.tensors.size());
  for (size_t i = 0; options_.allocate_tensors && i < tensors_.size(); ++i)
    MACO_TRY(allocate_tensor(i));
  cuda::DevicePtr table = 0, maps = 0, arena = 0, counters = 0, reports = 0;
  MACO_TRY(
      allocate_device(table, tensors_.size() * sizeof(cuda::DevicePtr), "the tensors' addresses"));
  MACO_TRY(allocate_device(maps, manifest_.maps.size() * sizeof(TensorMap), "tensor maps"));
  MACO_TRY(allocate_device(arena, static_cast<size_t>(manifest_.arena_bytes), "temporaries"));
  MACO_TRY(allocate_device(counters, static_cast<size_t>(manifest_.local_events) * sizeof(u32),
                           "events"));
  MACO_TRY(allocate_device(states_, ctas() * sizeof(LaunchState), "the numbers of launches"));
  if (const auto tasks = static_cast<size_t>(options_.profiled_tasks); tasks > 0) {
    MACO_TRY(allocate_device(cta_stamps_, ctas() * sizeof(CtaStamps), "stamps of CTAs"));
    MACO_TRY(allocate_device(task_stamps_, tasks * sizeof(TaskStamps), "stamps of tasks"));
    launch_.cta_stamps = pointer<CtaStamps>(cta_stamps_);
    launch_.task_stamps = pointer<TaskStamps>(task_stamps_);
    launch_.stamped_tasks = static_cast<u32>(tasks);
  }

  void* host = nullptr;
  MACO_TRY(check(driver_.host_allocate(&host, ctas() * sizeof(Report),
                                       cuda::kHostPortable | cuda::kHostMapped),
                 "allocate the reports"));
  reports_ = static_cast<Report*>(host);
  std::fill_n(reports_, ctas(), Report{});
  MACO_TRY(check(driver_.host_pointer(&reports, host, 0), "map the reports"));
  MACO_TRY(check(driver_.host_allocate(&host, 2 * sizeof(u32), cuda::kHostPortable),
                 "allocate host memory"));
  words_ = static_cast<uint32_t*>(host);
  words_[0] = words_[1] = 0;

  launch_.tensors = pointer<void*>(table);
  launch_.maps = pointer<TensorMap>(maps);
  launch_.arena = pointer<char>(arena);
  launch_.counters = pointer<u32>(counters);
  launch_.reports = pointer<Report>(reports);
  launch_.rank = rank_;
  launch_.timeout_ns = options_.timeout_ms * 1000000;
  return check(driver_.stream_synchronize(stream_), "clear memory");
}

void CudaRank::bind_tensor(size_t i, cuda::DevicePtr memory) {
  tensors_[i] = memory;
  moved_ = true;
}

Status CudaRank::allocate_tensor(size_t i) {
  const ir::ManifestTensor& t = manifest_.tensors[i];
  MACO_TRY(make_current());
  MACO_TRY(allocate_device(tensors_[i], static_cast<size_t>(t.max_elements * ir::size_of(t.dtype)),
                           fmt::format("tensor '{}'", t.name)));
  moved_ = true;
  return check(driver_.stream_synchronize(stream_), "clear memory");
}

Status CudaRank::place_tensors() {
  if (!moved_) return {};
  MACO_TRY(make_current());
  MACO_TRY(copy_pointers(device(launch_.tensors), tensors_));
  MACO_TRY(encode_maps());
  moved_ = false;
  return {};
}

Status CudaRank::encode_maps() {
  if (manifest_.maps.empty()) return {};
  std::vector<TensorMap> maps(manifest_.maps.size());
  for (size_t i = 0; i < maps.size(); ++i) {
    const ir::ManifestMap& m = manifest_.maps[i];
    const cuda::DevicePtr base =
        m.tensor < 0 ? device(launch_.arena) : tensors_[static_cast<size_t>(m.tensor)];
    // A tensor without an address gets one in each launch.
    if (base != 0) MACO_TRY(of_rank(encode_map(driver_, manifest_, i, base, maps[i])));
  }
  MACO_TRY(check(driver_.to_device(device(launch_.maps), maps.data(),
                                   maps.size() * sizeof(TensorMap), stream_),
                 "copy"));
  return check(driver_.stream_synchronize(stream_), "copy");
}

Status CudaRank::bind(const SymmetricMemory& symmetric, const SymmetricLayout& layout) {
  MACO_TRY(make_current());
  std::vector<cuda::DevicePtr> addresses;
  for (int owner = 0; owner < manifest_.world; ++owner)
    addresses.push_back(symmetric.address(owner, rank_));
  cuda::DevicePtr table = 0;
  MACO_TRY(
      allocate_device(table, addresses.size() * sizeof(cuda::DevicePtr), "the ranks' addresses"));
  MACO_TRY(copy_pointers(table, addresses));
  launch_.symmetric = pointer<char*>(table);
  launch_.control = pointer<Control>(addresses[static_cast<size_t>(rank_)] + layout.control);
  for (int r = 0; r < manifest_.world; ++r)
    if (r == rank_ || options_.group)
      controls_.push_back(addresses[static_cast<size_t>(r)] + layout.control);
  return {};
}

Status CudaRank::prepare_hand_over(const Nccl& nccl) {
  MACO_TRY(make_current());
  if (free_sms() < 1)
    return Status::failure(fmt::format(
        "rank {}: the kernel takes all {} SMs of GPU {}, and NCCL, which '{}' is handed over to, "
        "needs some: compile for fewer with --sms",
        rank_, device_.multiprocessors, device_.index, manifest_.handed[0].op));
  nccl_ = std::make_unique<NcclRank>(driver_, nccl, manifest_, rank_);
  MACO_TRY(nccl_->prepare());
  launch_.handed = pointer<Handed>(nccl_->words());
  return {};
}

std::string CudaRank::communicator_key() const {
  return fmt::format("{} {}/{} on {} with {} SMs",
                     options_.group ? options_.group->processes() : "", rank_, manifest_.world,
                     fmt::ptr(context_), free_sms());
}

Status CudaRank::connect(std::shared_ptr<const Nccl> nccl, const Nccl::Id* id) {
  MACO_TRY(make_current());
  const std::string key = communicator_key();
  auto communicator = id ? nullptr : Communicator::find(key);
  if (!communicator && !id)
    return Status::failure(fmt::format("rank {}: its communicator is gone", rank_));
  if (id) {
    Status status;
    communicator = Communicator::join(std::move(nccl), *id, rank_,
                                      static_cast<int>(manifest_.world), free_sms(), status);
    if (!communicator) return status;
    Communicator::keep(key, communicator);
  }
  return nccl_->connect(std::move(communicator));
}

Status CudaRank::write(size_t tensor, size_t offset, const void* data, size_t bytes) {
  MACO_TRY(make_current());
  MACO_TRY(
      check(driver_.to_device(tensors_[tensor] + offset, data, bytes, stream_), "copy to the GPU"));
  return check(driver_.stream_synchronize(stream_), "copy to the GPU");
}

Status CudaRank::read(size_t tensor, size_t offset, void* data, size_t bytes) {
  MACO_TRY(make_current());
  MACO_TRY(
      check(driver_.to_host(data, tensors_[tensor] + offset, bytes, stream_), "copy from the GPU"));
  return check(driver_.stream_synchronize(stream_), "copy from the GPU");
}

Status CudaRank::read_stamps(RankStamps& stamps) {
  MACO_TRY(make_current());
  stamps.clock = device_.index;
  stamps.ctas.resize(ctas());
  stamps.tasks.resize(launch_.stamped_tasks);
  MACO_TRY(check(driver_.to_host(stamps.ctas.data(), cta_stamps_,
                                 stamps.ctas.size() * sizeof(CtaStamps), stream_),
                 "copy the stamps"));
  MACO_TRY(check(driver_.to_host(stamps.tasks.data(), task_stamps_,
                                 stamps.tasks.size() * sizeof(TaskStamps), stream_),
                 "copy the stamps"));
  return check(driver_.stream_synchronize(stream_), "copy the stamps");
}

}  // namespace maco::runtime
