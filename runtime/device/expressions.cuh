// expressions.cuh: division in expressions of a graph, which rounds down. The compiler's
// codegen/expressions.h writes the rest as operators.

namespace maco {

// `b` isn't 0 if all values are in their ranges.
MACO_FN i64 floor_div(i64 a, i64 b) {
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
MACO_FN i64 floor_mod(i64 a, i64 b) { return a - floor_div(a, b) * b; }

}  // namespace maco
