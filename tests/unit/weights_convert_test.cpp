// Conversions of weights, against those of the reference.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "runtime/reference/numbers.h"
#include "runtime/weights/convert.h"
#include "tests/catch.h"

namespace maco::runtime {
namespace {

using ir::DType;
constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16};

// All bit patterns of 16 bits; of 32 bits, those at which rounding changes, and some others.
std::vector<std::byte> all_bits(DType type) {
  std::vector<uint32_t> bits;
  if (type == DType::F32) {
    for (uint32_t high = 0; high < 65536; ++high)
      for (const uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2000u, 0x3000u, 0x7fffu,
                                 0x8000u, 0x8001u, 0xffffu})
        bits.push_back(high << 16 | low);
    std::mt19937 random(5);
    for (int i = 0; i < 100000; ++i) bits.push_back(static_cast<uint32_t>(random()));
  } else {
    for (uint32_t all = 0; all < 65536; ++all) bits.push_back(all);
  }
  const auto size = static_cast<size_t>(ir::size_of(type));
  std::vector<std::byte> bytes(bits.size() * size);
  for (size_t i = 0; i < bits.size(); ++i) std::memcpy(bytes.data() + i * size, &bits[i], size);
  return bytes;
}

// How many elements are other than the reference has them.
size_t wrong(DType from, DType to, std::optional<float> plus) {
  const std::vector<std::byte> bytes = all_bits(from);
  const int64_t from_size = ir::size_of(from), to_size = ir::size_of(to);
  const auto n = static_cast<int64_t>(bytes.size()) / from_size;
  // Off by one, so that nothing is aligned.
  std::vector<std::byte> source(bytes.size() + 1), result(static_cast<size_t>(n * to_size) + 1);
  std::memcpy(source.data() + 1, bytes.data(), bytes.size());
  convert(from, source.data() + 1, to, result.data() + 1, n, plus);
  size_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const std::byte* const element = bytes.data() + i * from_size;
    const std::byte* const got = result.data() + 1 + i * to_size;
    std::byte expected[4]{};
    if (from == to && !plus) {
      std::memcpy(expected, element, static_cast<size_t>(to_size));
    } else {
      auto value = static_cast<float>(reference::decode(from, element));
      if (plus) value += *plus;
      reference::encode(to, double{value}, expected);
      if (std::isnan(reference::decode(to, expected)) && std::isnan(reference::decode(to, got)))
        continue;
    }
    if (std::memcmp(expected, got, static_cast<size_t>(to_size)) != 0 && count++ < 3)
      UNSCOPED_INFO("element " << i << " is " << reference::decode(from, element) << " and becomes "
                               << reference::decode(to, got) << ", not "
                               << reference::decode(to, expected));
  }
  return count;
}

TEST_CASE("elements are rounded once, whatever their bits are", "[weights]") {
  for (const DType from : kTypes)
    for (const DType to : kTypes)
      for (const std::optional<float> plus :
           {std::optional<float>(), std::optional<float>(1.0f), std::optional<float>(-3e-6f)}) {
        INFO(ir::name(from) << " to " << ir::name(to) << " plus " << plus.value_or(0));
        CHECK(wrong(from, to, plus) == 0);
      }
}

TEST_CASE("boxes keep to their rows, and may be transposed", "[weights]") {
  for (const bool transpose : {false, true})
    for (const DType to : kTypes)
      for (const auto& [rows, cols] :
           {std::pair<int64_t, int64_t>{1, 1}, {3, 70}, {70, 3}, {33, 64}}) {
        const int64_t pitch = cols + 5, to_pitch = (transpose ? rows : cols) + 3;
        const int64_t high = transpose ? cols : rows;
        std::vector<float> from(static_cast<size_t>(rows * pitch));
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i % 251);
        std::vector<std::byte> result(static_cast<size_t>(high * to_pitch * ir::size_of(to)),
                                      std::byte{0x3c});
        const std::vector<std::byte> before = result;
        convert_box({DType::F32, pitch}, reinterpret_cast<const std::byte*>(from.data()), rows,
                    cols, {to, to_pitch}, result.data(), transpose, 2.0f);
        for (int64_t r = 0; r < high; ++r)
          for (int64_t c = 0; c < to_pitch; ++c) {
            const auto at = static_cast<size_t>((r * to_pitch + c) * ir::size_of(to));
            const bool inside = c < to_pitch - 3;
            const auto of = static_cast<size_t>(transpose ? c * pitch + r : r * pitch + c);
            const double expected =
                inside ? double{from[of]} + 2 : reference::decode(to, before.data() + at);
            REQUIRE(reference::decode(to, result.data() + at) == expected);
          }
      }
}

}  // namespace
}  // namespace maco::runtime
