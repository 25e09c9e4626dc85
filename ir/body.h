// The body of a fused elementwise computation: what happens to one element, as data and as text.
//
//   t0 = copy(%0) : bf16; t1 = add(t0, %1) : bf16; t2 = mul(t1, value=0.5) : f32
//
// %i is operand i; a step may use operands, earlier steps and constants; the last step is the
// result. A step computes in f32 (i32 for integers) and is rounded to the dtype behind its colon:
// that of the tensor which had this value before fusion. So a body gives the same bits as its steps
// would as ops of their own.
//
// Attribute `body` of the internal op `fused`: %i is input i, and %0 has the shape of the result.
// Attribute `epilogue` of matmul: %0 is the f32 accumulator after bias and activation, unrounded
// (%0 and %1 for a paired matmul). The operands behind are the op's last inputs, each of the
// result's shape, [N] or [1]. The op writes the last step. Attribute `epilogue` of an allreduce is
// the same for its sum, where the sum is made; its operands have the result's shape.
// Parameter of a call: BodyParam.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace maco::ir {

/// Which arguments a function takes: only floats; also i32; also i32 and u8; All: any type, for
/// functions that only convert (copy and cast).
enum class Takes : uint8_t { Floats, Integers, Bytes, All };

/// A function that a step can call. `truth`: it gives 0 or 1. `chooses`: its first argument is a
/// condition, a u8, and the others are what `takes` says.
struct BodyFunction {
  std::string_view name;
  int args = 1;
  Takes takes = Takes::Floats;
  bool truth = false;
  bool chooses = false;
};
/// nullptr if there is no such function.
const BodyFunction* find_body_function(std::string_view name);

struct BodyArg {
  enum class Kind : uint8_t { Operand, Step, Constant };
  Kind kind = Kind::Operand;
  int index = 0;        // Operand, Step
  double constant = 0;  // Constant
  static BodyArg operand(int i) { return {Kind::Operand, i, 0}; }
  static BodyArg step(int i) { return {Kind::Step, i, 0}; }
  static BodyArg value(double v) { return {Kind::Constant, 0, v}; }
  friend bool operator==(const BodyArg&, const BodyArg&) = default;
};

struct BodyStep {
  std::string function;
  std::vector<BodyArg> args;
  DType dtype = DType::F32;
  friend bool operator==(const BodyStep&, const BodyStep&) = default;
};

struct Body {
  std::vector<BodyStep> steps;  // at least one
  /// One more than the highest operand used.
  int operands() const;
  DType dtype() const { return steps.back().dtype; }
  friend bool operator==(const Body&, const Body&) = default;
};

/// Steps are called t0, t1, ... in order. parse_body(print(b)) == b.
std::string print(const Body& body);
/// On failure returns nothing and sets `error` to the reason.
std::optional<Body> parse_body(std::string_view text, std::string& error);

/// Why the body can't be computed with operands of these dtypes, or "". Example: "'silu' is not
/// defined for i32".
std::string check_body(const Body& body, const std::vector<DType>& operands);

/// Whether the result is operand 0 unchanged: all steps are copies, or casts to its dtype.
bool moves(const Body& body, const std::vector<DType>& operands);

/// How an operand's elements correspond to the result's: one for each element, one for each column,
/// or a single one. Accumulator: not an operand of the call, but what the device function has
/// computed for the element, in f32 or i32. Accumulators come first and have one dtype.
enum class Spread : uint8_t { Full, Column, Single, Accumulator };
std::string_view name(Spread spread);

struct BodyOperand {
  Spread spread = Spread::Full;
  DType dtype = DType::F32;
  friend bool operator==(const BodyOperand&, const BodyOperand&) = default;
};

/// A body as the parameter of a call: %i is operands[i]. The first operands are the accumulators,
/// if the device function has any. The others are operands of the call, in their order.
struct BodyParam {
  Body body;
  std::vector<BodyOperand> operands;
  std::vector<DType> dtypes() const;
  /// The number of accumulators.
  size_t accumulators() const;
  bool has_accumulator() const { return accumulators() > 0; }
  friend bool operator==(const BodyParam&, const BodyParam&) = default;
};
/// Why the parameter is not valid, or "". Checks what check_body(Body) does, and the accumulators'
/// places and dtype.
std::string check_body(const BodyParam& param);

/// Whether step `s` computes in f32; if not, it computes in i32.
bool computes_in_float(const Body& body, const BodyStep& s, const std::vector<DType>& operands);
/// Whether the step's value before rounding is an f32; if not, it is an i32.
bool gives_float(const Body& body, const BodyStep& s, const std::vector<DType>& operands);
/// Whether the step returns its argument unchanged, the bits of a NaN included.
bool keeps_bits(const Body& body, const BodyStep& s, const std::vector<DType>& operands);

}  // namespace maco::ir
