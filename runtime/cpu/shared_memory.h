// Symmetric memory of ranks in processes of their own: one piece of memory that all of them map.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/host/group.h"

namespace maco::runtime {

class SharedMemory {
 public:
  /// Maps zeroed memory of `bytes` for each rank of the group; all processes call this.
  static std::unique_ptr<SharedMemory> map(Group& group, size_t bytes, Status& status);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The begin of a rank's memory in this process; a multiple of the page size.
  char* of(int rank) const { return base_ + static_cast<size_t>(rank) * stride_; }

 private:
  SharedMemory(char* base, size_t stride, size_t bytes)
      : base_(base), stride_(stride), bytes_(bytes) {}
  char* base_;
  size_t stride_, bytes_;
};

}  // namespace maco::runtime
