// The element types of tensors and their sizes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace maco::ir {

enum class DType : uint8_t { F32, F16, BF16, F8E4M3, F8E5M2, I32, U8 };

inline constexpr std::array<DType, 7> kAllDTypes = {
    DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::I32, DType::U8};

/// The name as graphs write it: "bf16".
constexpr std::string_view name(DType t) {
  constexpr std::string_view names[] = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "u8"};
  return names[static_cast<size_t>(t)];
}

/// Bytes of one element.
constexpr int64_t size_of(DType t) {
  constexpr int64_t sizes[] = {4, 2, 2, 1, 1, 4, 1};
  return sizes[static_cast<size_t>(t)];
}

/// Whether it is a floating-point type; the others are integers.
constexpr bool is_float(DType t) { return t != DType::I32 && t != DType::U8; }

/// Whether a ring algorithm rounds its sums to x's type at each rank on their way to a result of
/// type y. It does so for 16-bit floats with a result of the same type, except for averages of f16,
/// whose sum may overflow. `reduce` is the word that graphs use.
constexpr bool ring_rounds(DType x, DType y, std::string_view reduce) {
  return x == y && ((x == DType::BF16 && (reduce == "sum" || reduce == "avg")) ||
                    (x == DType::F16 && reduce == "sum"));
}

/// Whether the number is finite after rounding to f32: its magnitude is below the largest float
/// plus half of that float's last place.
constexpr bool fits_f32(double number) {
  return -0x1.ffffffp127 < number && number < 0x1.ffffffp127;
}

/// The type called `text`, or nothing.
constexpr std::optional<DType> dtype_from_name(std::string_view text) {
  for (DType t : kAllDTypes)
    if (name(t) == text) return t;
  return std::nullopt;
}

}  // namespace maco::ir
