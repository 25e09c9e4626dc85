// symmetric_handles.cpp: one process for each rank. Each makes its memory with a handle, sends the
// others a file that stands for it over their sockets, and maps the memory of the others (CUDA's
// virtual memory management). The memory is freed with the last process that maps it.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>

#include "runtime/host/symmetric.h"

namespace maco::runtime {
namespace {

class Handles : public SymmetricMemory {
 public:
  explicit Handles(const SymmetricRequest& request)
      : driver_(request.driver),
        group_(*request.group),
        here_(request.ranks[0]),
        mapped_(static_cast<size_t>(group_.size()), 0) {
    kind_.place.device = here_.device;
  }
  ~Handles() override {
    if (driver_.context_set(here_.context) != cuda::kSuccess) return;
    for (const cuda::DevicePtr at : mapped_) {
      if (!at) continue;
      driver_.memory_unmap(at, bytes_);
      driver_.memory_unreserve(at, bytes_);
    }
  }
  cuda::DevicePtr address(int owner, int) const override {
    return mapped_[static_cast<size_t>(owner)];
  }

  Status allocate(size_t bytes) {
    int file = -1;
    const Status made = make(bytes, file);
    Status status = group_.agree(made);
    std::vector<int> files;
    if (status) status = group_.exchange_files(file, files);
    if (file >= 0) ::close(file);
    MACO_TRY(status);
    status = map_all(files);
    for (const int one : files) ::close(one);
    return group_.agree(status);
  }

 private:
  Status check(cuda::Result result, const std::string& what) const {
    Status status = driver_.check(result, what);
    if (!status)
      status.message =
          fmt::format("rank {} on GPU {}: {}", group_.rank(), here_.device_index, status.message);
    return status;
  }

  // Makes the rank's own memory, zeroed, and a file that stands for it.
  Status make(size_t bytes, int& file) {
    int files = 0;
    size_t unit = 0;
    MACO_TRY(check(driver_.context_set(here_.context), "switch devices"));
    MACO_TRY(
        check(driver_.device_attribute(&files, cuda::kHandlesAreFiles, here_.device), "query it"));
    if (!files)
      return Status::failure(fmt::format(
          "rank {} on GPU {}: its memory can't be shared between processes as files: run all ranks "
          "in one process (--peer-memory threads)",
          group_.rank(), here_.device_index));
    MACO_TRY(check(driver_.memory_granularity(&unit, &kind_, 0), "query it"));
    bytes_ = (bytes + unit - 1) / unit * unit;
    cuda::MemoryHandle handle = 0;
    MACO_TRY(check(driver_.memory_create(&handle, bytes_, &kind_, 0),
                   fmt::format("allocate {} bytes of symmetric memory", bytes_)));
    Status status = check(driver_.memory_export(&file, handle, cuda::kHandleIsFile, 0),
                          "give its memory to other processes");
    if (status) status = map(group_.rank(), handle);
    driver_.memory_release(handle);  // a mapping and a file keep the memory
    MACO_TRY(status);
    const cuda::DevicePtr at = mapped_[static_cast<size_t>(group_.rank())];
    MACO_TRY(check(driver_.fill(at, 0, bytes_, nullptr), "clear symmetric memory"));
    return check(driver_.stream_synchronize(nullptr), "clear symmetric memory");
  }

  Status map_all(const std::vector<int>& files) {
    for (int owner = 0; owner < group_.size(); ++owner) {
      if (owner == group_.rank()) continue;
      cuda::MemoryHandle handle = 0;
      void* const file =
          // NOLINTNEXTLINE(performance-no-int-to-ptr): a descriptor, as the driver takes it
          reinterpret_cast<void*>(static_cast<intptr_t>(files[static_cast<size_t>(owner)]));
      MACO_TRY(check(driver_.memory_import(&handle, file, cuda::kHandleIsFile),
                     fmt::format("take the memory of rank {}", owner)));
      const Status status = map(owner, handle);
      driver_.memory_release(handle);
      MACO_TRY(status);
    }
    return {};
  }

  Status map(int owner, cuda::MemoryHandle handle) {
    const std::string what = fmt::format("map the memory of rank {}", owner);
    cuda::DevicePtr at = 0;
    MACO_TRY(check(driver_.memory_reserve(&at, bytes_, 0, 0, 0), what));
    if (Status status = check(driver_.memory_map(at, bytes_, 0, handle, 0), what); !status) {
      driver_.memory_unreserve(at, bytes_);
      return status;
    }
    mapped_[static_cast<size_t>(owner)] = at;
    cuda::MemoryAccess access;
    access.place = kind_.place;
    return check(driver_.memory_access(at, bytes_, &access, 1),
                 what + " for reading and writing (see 'nvidia-smi topo -p2p r')");
  }

  const cuda::Driver& driver_;
  Group& group_;
  const SymmetricRank here_;
  cuda::MemoryKind kind_;
  size_t bytes_ = 0;  // of each rank, as they are mapped
  std::vector<cuda::DevicePtr> mapped_;
};

}  // namespace

extern const SymmetricProvider kHandlesProvider;
const SymmetricProvider kHandlesProvider = {
    "processes", "CUDA memory handles, passed between processes over sockets", false, true,
    allocate_as<Handles>};

}  // namespace maco::runtime
