// Memory with red zones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace maco::runtime {

/// The memory on either side of a piece of memory, filled with a pattern; overwriting it is
/// detected on request. Owns nothing.
class RedZones {
 public:
  /// The pattern fills [begin, data) and [data + bytes, end).
  RedZones(char* begin, char* data, size_t bytes, char* end);
  char* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool contains(const void* address) const;
  size_t pattern_bytes() const { return static_cast<size_t>(end_ - begin_) - bytes_; }
  /// The overwritten byte of the pattern that is nearest to the memory, counted from the memory's
  /// begin.
  std::optional<int64_t> damage() const;
  /// Restores the pattern.
  void mend() const;

 private:
  char *begin_, *data_, *end_;
  size_t bytes_;
};

/// Zeroed memory with a red zone on either side: a pattern up to the end of the page, then `fence`
/// bytes that can't be touched. Touching these raises SIGSEGV; overwriting the pattern is detected
/// on request.
class FencedMemory {
 public:
  /// `align`: a power of two up to the page size. `fence` is rounded up to pages; 0: instead a page
  /// of the pattern on either side. Throws std::bad_alloc.
  FencedMemory(size_t bytes, size_t align, size_t fence);
  ~FencedMemory();
  FencedMemory(FencedMemory&& other) noexcept;
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;
  FencedMemory& operator=(FencedMemory&&) = delete;

  char* data() const { return data_; }
  size_t size() const { return bytes_; }
  void clear();
  /// Whether the address lies in a red zone.
  bool fences(const void* address) const;
  RedZones zones() const { return {begin_, data_, bytes_, begin_ + inner_}; }

 private:
  size_t bytes_, inner_ = 0, mapped_bytes_ = 0;
  char* mapped_ = nullptr;
  char* begin_ = nullptr;  // of what can be touched
  char* data_ = nullptr;
};

/// How large fences can be for `count` pieces of memory: small in processes with limited address
/// space, else so that all together take only a part of it; 0 for very many pieces.
size_t fence_bytes(size_t count);

}  // namespace maco::runtime
