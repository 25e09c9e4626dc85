#include "runtime/cpu/fenced_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace maco::runtime {
namespace {

// A small number in every type, so that atomics that add to it change it.
constexpr int kPattern = 0x2b;

size_t page() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// The first byte of [begin, end) that differs from the pattern, or `end`.
const char* spoiled(const char* begin, const char* end) {
  const auto is_pattern = [](char c) { return c == static_cast<char>(kPattern); };
  // Mostly nothing differs: if the first byte is right and each equals the next, all are right.
  if (begin == end || (is_pattern(*begin) &&
                       std::memcmp(begin, begin + 1, static_cast<size_t>(end - begin) - 1) == 0))
    return end;
  return std::find_if_not(begin, end, is_pattern);
}

}  // namespace

FencedMemory::FencedMemory(size_t bytes, size_t align, size_t fence)
    : bytes_(std::max<size_t>(bytes, 1)) {
  const size_t outer = round_up(fence, page()), pattern = fence == 0 ? page() : 0;
  const size_t used = round_up(bytes_, align) + pattern;
  inner_ = round_up(used + pattern, page());
  mapped_bytes_ = inner_ + 2 * outer;
  void* mapped = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  mapped_ = static_cast<char*>(mapped);
  begin_ = mapped_ + outer;
  if (mprotect(begin_, inner_, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped_, mapped_bytes_);
    throw std::bad_alloc();
  }
  data_ = begin_ + inner_ - used;
  zones().mend();
}

FencedMemory::~FencedMemory() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
}

FencedMemory::FencedMemory(FencedMemory&& other) noexcept
    : bytes_(other.bytes_),
      inner_(other.inner_),
      mapped_bytes_(other.mapped_bytes_),
      mapped_(std::exchange(other.mapped_, nullptr)),
      begin_(other.begin_),
      data_(other.data_) {}

void FencedMemory::clear() { std::memset(data_, 0, bytes_); }

bool FencedMemory::fences(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return at >= mapped_ && at < mapped_ + mapped_bytes_ && (at < data_ || at >= data_ + bytes_);
}

RedZones::RedZones(char* begin, char* data, size_t bytes, char* end)
    : begin_(begin), data_(data), end_(end), bytes_(bytes) {}

bool RedZones::contains(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return at >= begin_ && at < end_ && (at < data_ || at >= data_ + bytes_);
}

std::optional<int64_t> RedZones::damage() const {
  if (const char* at = spoiled(data_ + bytes_, end_); at != end_) return at - data_;
  std::optional<int64_t> before;
  for (const char* at = spoiled(begin_, data_); at != data_; at = spoiled(at + 1, data_))
    before = at - data_;
  return before;
}

void RedZones::mend() const {
  std::memset(begin_, kPattern, static_cast<size_t>(data_ - begin_));
  std::memset(data_ + bytes_, kPattern, static_cast<size_t>(end_ - data_) - bytes_);
}

size_t fence_bytes(size_t count) {
  // Each piece takes two of the mappings that a process may have, usually 65,530.
  constexpr size_t most_fenced = 8192, small = size_t{64} << 10, large = size_t{64} << 20,
                   all = size_t{1} << 40;
  if (count > most_fenced) return 0;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return small;
  return std::clamp(all / 2 / std::max<size_t>(count, 1), small, large);
}

}  // namespace maco::runtime
