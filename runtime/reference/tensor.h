// A tensor in host memory: bytes in its element type, row-major and dense.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/dtype.h"

namespace maco::reference {

using Extents = std::vector<int64_t>;

struct Tensor {
  ir::DType dtype = ir::DType::F32;
  Extents shape;                 // actual extents; empty: no tensor
  std::vector<std::byte> bytes;  // elements() x size_of(dtype)

  Tensor() = default;
  /// All zero.
  Tensor(ir::DType type, Extents extents);
  /// Values rounded to `type`; as many as the shape has elements.
  static Tensor of(ir::DType type, Extents extents, const std::vector<double>& values);

  int64_t elements() const;
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return cols() == 0 ? 0 : elements() / cols(); }
  int64_t axis(int a) const {
    return shape[static_cast<size_t>(a < 0 ? a + static_cast<int>(shape.size()) : a)];
  }
  /// The product of the extents of axes [first, last).
  int64_t product(int first, int last) const;

  double at(int64_t i) const;
  void set(int64_t i, double value);
  std::byte* element(int64_t i) { return bytes.data() + i * ir::size_of(dtype); }
  const std::byte* element(int64_t i) const { return bytes.data() + i * ir::size_of(dtype); }

  std::vector<double> doubles() const;
  std::vector<float> floats() const;
  std::vector<int32_t> integers() const;
  /// Rounds and stores values, as many as elements.
  void store(const std::vector<double>& values);
  void store(const std::vector<int32_t>& values);

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

int64_t product(const Extents& extents);
/// "[64,1024]"
std::string to_string(const Extents& extents);
/// "bf16[64,1024]"
std::string describe(ir::DType type, const Extents& extents);

}  // namespace maco::reference
