// Conversions between the element types and double, as 'Numbers' of the graph format says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/dtype.h"

namespace maco::reference {

/// One element; exact for every type.
double decode(ir::DType type, const std::byte* from);
/// Rounds once, to nearest even. f8 saturates (infinities too), f16, bf16 and f32 overflow to
/// infinity. To integers: truncates, saturates, NaN to 0.
void encode(ir::DType type, double value, std::byte* to);

/// Arrays of `n` elements.
void decode(ir::DType type, const std::byte* from, int64_t n, double* to);
void decode(ir::DType type, const std::byte* from, int64_t n, float* to);
void encode(ir::DType type, const double* from, int64_t n, std::byte* to);
void encode(ir::DType type, const float* from, int64_t n, std::byte* to);

/// Integer types as the i32 that integer ops accumulate in. Back to u8 wraps, as NumPy's astype
/// does; to floats rounds to nearest even.
void decode(ir::DType type, const std::byte* from, int64_t n, int32_t* to);
void encode(ir::DType type, const int32_t* from, int64_t n, std::byte* to);

/// The value that `value` has once stored as `type`.
double round_to(ir::DType type, double value);

}  // namespace maco::reference
