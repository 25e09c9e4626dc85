// Memory with red zones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace maco::runtime {

/// The parts of memory on either side of a piece of it that hold a pattern: who overwrites that is
/// found out when asked for. It owns nothing.
class RedZones {
 public:
  /// The pattern's are [begin, data) and [data + bytes, end).
  RedZones(char* begin, char* data, size_t bytes, char* end);
  char* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool contains(const void* address) const;
  size_t pattern_bytes() const { return static_cast<size_t>(end_ - begin_) - bytes_; }
  /// The byte nearest to the memory at which the pattern is overwritten, counted from its begin.
  std::optional<int64_t> damage() const;
  /// Writes the pattern anew.
  void mend() const;

 private:
  char *begin_, *data_, *end_;
  size_t bytes_;
};

/// Zeroed memory with a red zone on either side: up to the ends of its pages a pattern, behind
/// those `fence` bytes that can't be touched. What touches them ends with SIGSEGV; what overwrites
/// the pattern is found out when asked for.
class FencedMemory {
 public:
  /// `align`: a power of two up to the size of a page. `fence` is rounded up to pages; 0: there is
  /// a page of the pattern instead on either side. Throws std::bad_alloc.
  FencedMemory(size_t bytes, size_t align, size_t fence);
  ~FencedMemory();
  FencedMemory(FencedMemory&& other) noexcept;
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;
  FencedMemory& operator=(FencedMemory&&) = delete;

  char* data() const { return data_; }
  size_t size() const { return bytes_; }
  void clear();
  /// Does the address lie in a red zone?
  bool fences(const void* address) const;
  RedZones zones() const { return {begin_, data_, bytes_, begin_ + inner_}; }

 private:
  size_t bytes_, inner_ = 0, mapped_bytes_ = 0;
  char* mapped_ = nullptr;
  char* begin_ = nullptr;  // of what can be touched
  char* data_ = nullptr;
};

/// How large fences can be where there are `count` pieces of memory: of processes whose address
/// space is limited small, else such that they all take a part of it only; 0 for very many.
size_t fence_bytes(size_t count);

}  // namespace maco::runtime
