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

/// Conversions of integer types to and from i32, in which integer ops accumulate. To u8 they wrap,
/// as NumPy's astype does; to floats they round to nearest even.
void decode(ir::DType type, const std::byte* from, int64_t n, int32_t* to);
void encode(ir::DType type, const int32_t* from, int64_t n, std::byte* to);

/// The value of `value` after storing it as `type`.
double round_to(ir::DType type, double value);

}  // namespace maco::reference
