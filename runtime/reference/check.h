// Whether a result agrees with the reference: the rules of --check in the graph format.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/tensor.h"

namespace maco::reference {

struct CheckResult {
  bool ok = true;
  // The largest relative error found, of the tensor or of a block (integers: how many differ).
  double error = 0;
  double bound = 0;  // with which it was compared
  std::string what;  // why it failed and where, or "" ; without the tensor's name
  // For argmax and comparisons: how many elements differ where the reference's values tie.
  int64_t tied = 0;
  int64_t elements = 0;
  int64_t not_finite = 0;  // how many elements are NaN or infinite, and don't count for the error
};

/// The bound on the relative error of a tensor of this dtype: f32 1e-5, f16 2e-3, bf16 1e-2, f8
/// 1e-1, integers 0.
double default_bound(ir::DType type);

/// The bound of each tensor of a graph: that of its dtype or, if larger, that of the coarsest dtype
/// among the rounded values from which it was computed. (A bf16 temporary may round the other way
/// because of a difference in the last bit of its f32 sum; an f32 result computed from it can't be
/// better than bf16. Values that were bound or only moved are exact and don't count.) The bound
/// grows with depth: it is multiplied by max(1, sqrt(d / 8)), where d is the most roundings to a
/// dtype of that bound on one path to the tensor.
std::vector<double> bounds_of(const ir::Graph& graph);

/// Floats: NaN and infinities must be in the same places. For the rest, the Frobenius norm of the
/// difference divided by that of `expected` must not exceed `bound`, for the tensor and for each
/// block of 64 x 64 (rows: all axes but the last). A block's norm counts as at least what the
/// tensor's root mean square gives a block of its size. Integers must be equal.
CheckResult compare(const Tensor& actual, const Tensor& expected, double bound);

/// Compares an argmax. Where the results differ, `values` (its input, from the reference) must tie
/// within `bound`, relative to the value or the root mean square of the row's finite values,
/// whichever is larger. Infinities and NaN must be chosen exactly.
CheckResult compare_argmax(const Tensor& actual, const Tensor& expected, const Tensor& values,
                           double bound);

/// Compares a comparison of `values` with `others`, which are as many or repeat (both from the
/// reference). Where the results differ, the two must be within `bound` of each other, relative to
/// the larger one or the root mean square of `values`.
CheckResult compare_comparison(const Tensor& actual, const Tensor& expected, const Tensor& values,
                               const std::vector<double>& others, double bound);

/// Compares results of the last launch, rank by rank, with those of a reference that has run the
/// same launch.
class Checker {
 public:
  /// `rtol` replaces the bounds of floats.
  Checker(const Reference& reference, std::optional<double> rtol);
  /// The result of an argmax or a comparison of computed floats is compared by these rules, unless
  /// the op read a state, which may have changed since.
  CheckResult check(int rank, ir::TensorId tensor, const Tensor& actual) const;

 private:
  const Reference& reference_;
  std::vector<double> bounds_;
  std::vector<double> coarsest_;  // 0: the tensor has the same bits whoever computes it
};

/// The text for a correct result: "ok, worst error 0.00021 of 0.01; 3 of 1000 are not finite"; for
/// more than one rank "ok on 4 ranks, worst error 0.00021 of 0.01 on rank 2".
std::string success_text(const CheckResult& result, int ranks = 1, int worst_rank = 0);

/// "'y' on rank 1: ok, worst error 0.00021 of 0.01" or "'y' on rank 1: relative error ... in rows
/// [0,64), columns ..., ...".
std::string to_line(const std::string& tensor, int rank, const CheckResult& result);

}  // namespace maco::reference
