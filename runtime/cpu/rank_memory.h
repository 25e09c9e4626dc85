// A rank's memory on the CPU: tensors, temporaries, slots, and what its CTAs have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "ir/manifest.h"
#include "runtime/cpu/fenced_memory.h"
#include "runtime/host/abi.h"
#include "runtime/host/profile.h"

namespace maco::runtime {

// Zeroed memory, aligned as device allocations are.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {
    data_ = static_cast<char*>(::operator new(bytes_, kAlignment));
    clear();
  }
  ~Memory() {
    if (data_) ::operator delete(data_, kAlignment);
  }
  Memory(Memory&& other) noexcept : bytes_(other.bytes_), data_(other.data_) {
    other.data_ = nullptr;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory& operator=(Memory&&) = delete;

  char* data() const { return data_; }
  size_t size() const { return bytes_; }
  void clear() { std::memset(data_, 0, bytes_); }

 private:
  static constexpr std::align_val_t kAlignment{1024};
  size_t bytes_;
  char* data_ = nullptr;
};

// Memory of a tensor, or of all slots or temporaries of a rank; with red zones if a user's kernel
// might overrun it.
class TensorMemory {
 public:
  TensorMemory(int64_t bytes, std::optional<size_t> fence) {
    constexpr size_t align = 256;  // as device allocations are
    if (fence)
      fenced_.emplace(static_cast<size_t>(bytes), align, *fence);
    else
      plain_.emplace(bytes);
  }
  char* data() const { return fenced_ ? fenced_->data() : plain_->data(); }
  size_t size() const { return fenced_ ? fenced_->size() : plain_->size(); }
  void clear() {
    if (fenced_)
      fenced_->clear();
    else
      plain_->clear();
  }
  /// Null if it has no red zones.
  const FencedMemory* fenced() const { return fenced_ ? &*fenced_ : nullptr; }

 private:
  std::optional<Memory> plain_;
  std::optional<FencedMemory> fenced_;
};

struct RankState {
  std::vector<std::optional<TensorMemory>> tensors;  // memory of the session's own
  std::vector<void*> tensor_pointers;
  std::vector<TensorMap> maps;
  int rank = 0;
  std::optional<size_t> fences;  // size of red zones' fences; nothing: no red zones
  TensorMemory arena;
  Memory counters, handed;
  std::optional<TensorMemory> own_symmetric;  // unless all processes map it
  char* symmetric = nullptr;
  std::vector<Memory> shared_memory;  // of its CTAs, or
  std::vector<FencedMemory> fenced_memory;
  std::vector<char*> ctas;      // the CTAs' shared memory
  std::vector<Report> reports;  // of its CTAs
  RankStamps stamps;
  std::vector<LaunchState> states;  // for launches with dims or scalars in memory
  Launch launch{};

  /// `fenced_ctas`: whether CTAs' shared memory has fences, at which an overflow stops. `fence`:
  /// the size of red zones' fences, if own memory has red zones. `shared`: the rank's symmetric
  /// memory; null: it allocates its own.
  RankState(const ir::Manifest& m, int number, bool fenced_ctas, std::optional<size_t> fence,
            int64_t profiled_tasks, char* shared);

  void allocate(const ir::Manifest& m, size_t tensor);
  /// Makes the maps for the tensors' current addresses.
  void make_maps(const ir::Manifest& m);
};

}  // namespace maco::runtime
