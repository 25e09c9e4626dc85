#include "runtime/cpu/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace maco::runtime {
namespace {

// Rank 0 makes the memory, without a name that could be left behind. The others open it through
// rank 0's process.
int open_memory(Group& group, size_t bytes, Status& status) {
  std::string path, why;
  int file = -1;
  if (group.rank() == 0) {
    file = ::memfd_create("maco", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
      why = std::strerror(errno);
    else
      path = fmt::format("/proc/{}/fd/{}", ::getpid(), file);
  }
  std::vector<std::string> all;
  if (status = group.exchange(path, all); status && all[0].empty())
    status = Status::failure(fmt::format("rank 0 can't make {} bytes of shared memory{}", bytes,
                                         why.empty() ? "" : ": " + why));
  if (status && group.rank() != 0) {
    file = ::open(all[0].c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0)
      why = fmt::format("rank {} can't open the shared memory of rank 0: {}", group.rank(),
                        std::strerror(errno));
  }
  if (status) status = group.exchange(why, all);
  if (status)
    for (const std::string& one : all)
      if (!one.empty()) status = Status::failure(one);
  if (!status && file >= 0) ::close(file);
  return status ? file : -1;
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::map(Group& group, size_t bytes, Status& status) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t stride = (bytes + page - 1) / page * page;
  const size_t all = stride * static_cast<size_t>(group.size());
  const int file = open_memory(group, all, status);
  if (file < 0) return nullptr;
  void* base = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (base == MAP_FAILED) {
    status = Status::failure(fmt::format("can't map {} bytes of shared memory", all));
    return nullptr;
  }
  // Its file is open nowhere now; the memory is freed with the last process that maps it.
  status = group.meet();
  std::unique_ptr<SharedMemory> memory(new SharedMemory(static_cast<char*>(base), stride, all));
  return status ? std::move(memory) : nullptr;
}

SharedMemory::~SharedMemory() { ::munmap(base_, bytes_); }

}  // namespace maco::runtime
