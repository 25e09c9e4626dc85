// Converts many elements at a time between f32, f16 and bf16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ir/dtype.h"

namespace maco::runtime {

/// Writes `n` elements as another type: converted to f32 exactly, `plus` added in f32, and rounded
/// once, to nearest even. With equal types and without `plus` the bytes are copied. NaN stays NaN;
/// values too large for f16 become infinity. Neither address needs to be aligned.
void convert(ir::DType from_type, const std::byte* from, ir::DType to_type, std::byte* to,
             int64_t n, std::optional<float> plus);

/// As convert, for a box of rows x cols elements. `pitch`: elements from one row of a box to the
/// next. `transpose`: the result is cols x rows.
struct Box {
  ir::DType type = ir::DType::F32;
  int64_t pitch = 0;
};
void convert_box(Box from_box, const std::byte* from, int64_t rows, int64_t cols, Box to_box,
                 std::byte* to, bool transpose, std::optional<float> plus);

}  // namespace maco::runtime
