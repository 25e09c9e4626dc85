#include "runtime/weights/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace maco::runtime {
namespace {

using ir::DType;

// A type's bits, and their conversion to those of an f32 and back. Without branches, so that loops
// over them are vectorized.
struct F32 {
  using Bits = uint32_t;
  static uint32_t to_f32(Bits bits) { return bits; }
  static Bits from_f32(uint32_t bits) { return bits; }
};

struct Bf16 {
  using Bits = uint16_t;
  static uint32_t to_f32(Bits bits) { return uint32_t{bits} << 16; }
  static Bits from_f32(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40;
    return static_cast<Bits>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
  }
};

struct F16 {
  using Bits = uint16_t;
  static uint32_t to_f32(Bits bits) {
    // The exponent's bias differs by 112; subnormals of f16 are none in f32.
    const float scaled = std::bit_cast<float>(uint32_t{bits & 0x7fffu} << 13) * 0x1p112f;
    uint32_t magnitude = std::bit_cast<uint32_t>(scaled);
    magnitude |= (bits & 0x7c00u) == 0x7c00 ? 0x7f800000u : 0;  // infinity and NaN
    return magnitude | uint32_t{bits & 0x8000u} << 16;
  }
  static Bits from_f32(uint32_t bits) {
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Below 2^-14 the sum's last place is that of f16's subnormals.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x47800000 ? 0x7c00 : result;
    result = magnitude > 0x7f800000 ? nan : result;
    return static_cast<Bits>(sign | result);
  }
};

template <class From, class To, bool kPlus>
void convert_all(const std::byte* from, std::byte* to, int64_t n, float plus) {
  for (int64_t i = 0; i < n; ++i) {
    typename From::Bits read;
    std::memcpy(&read, from + i * static_cast<int64_t>(sizeof read), sizeof read);
    uint32_t bits = From::to_f32(read);
    if constexpr (kPlus) bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + plus);
    const typename To::Bits written = To::from_f32(bits);
    std::memcpy(to + i * static_cast<int64_t>(sizeof written), &written, sizeof written);
  }
}

template <class From, class To>
void convert_from(const std::byte* from, std::byte* to, int64_t n, std::optional<float> plus) {
  if (plus) return convert_all<From, To, true>(from, to, n, *plus);
  if constexpr (std::is_same_v<From, To>)
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(typename From::Bits));
  else
    convert_all<From, To, false>(from, to, n, 0);
}

template <class From>
void convert_to(DType type, const std::byte* from, std::byte* to, int64_t n,
                std::optional<float> plus) {
  if (type == DType::F32) return convert_from<From, F32>(from, to, n, plus);
  if (type == DType::F16) return convert_from<From, F16>(from, to, n, plus);
  convert_from<From, Bf16>(from, to, n, plus);
}

// dst[c][r] = src[r][c]; destination rows have `to_pitch` elements.
template <class Bits>
void transpose_tile(const std::byte* tile, int64_t rows, int64_t cols, std::byte* to,
                    int64_t to_pitch) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Bits));
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(to + (c * to_pitch + r) * kSize, tile + (r * cols + c) * kSize, sizeof(Bits));
}

}  // namespace

void convert(DType from_type, const std::byte* from, DType to_type, std::byte* to, int64_t n,
             std::optional<float> plus) {
  if (from_type == DType::F32) return convert_to<F32>(to_type, from, to, n, plus);
  if (from_type == DType::F16) return convert_to<F16>(to_type, from, to, n, plus);
  convert_to<Bf16>(to_type, from, to, n, plus);
}

void convert_box(Box from_box, const std::byte* from, int64_t rows, int64_t cols, Box to_box,
                 std::byte* to, bool transpose, std::optional<float> plus) {
  const int64_t from_size = ir::size_of(from_box.type), to_size = ir::size_of(to_box.type);
  if (!transpose && from_box.pitch == cols && to_box.pitch == cols) {
    convert(from_box.type, from, to_box.type, to, rows * cols, plus);
    return;
  }
  if (!transpose) {
    for (int64_t r = 0; r < rows; ++r)
      convert(from_box.type, from + r * from_box.pitch * from_size, to_box.type,
              to + r * to_box.pitch * to_size, cols, plus);
    return;
  }
  constexpr int64_t kTile = 32;
  std::byte tile[kTile * kTile * sizeof(uint32_t)];
  for (int64_t r = 0; r < rows; r += kTile)
    for (int64_t c = 0; c < cols; c += kTile) {
      const int64_t high = std::min(kTile, rows - r), wide = std::min(kTile, cols - c);
      for (int64_t i = 0; i < high; ++i)
        convert(from_box.type, from + ((r + i) * from_box.pitch + c) * from_size, to_box.type,
                tile + i * wide * to_size, wide, plus);
      std::byte* const corner = to + (c * to_box.pitch + r) * to_size;
      if (to_size == 4)
        transpose_tile<uint32_t>(tile, high, wide, corner, to_box.pitch);
      else
        transpose_tile<uint16_t>(tile, high, wide, corner, to_box.pitch);
    }
}

}  // namespace maco::runtime
