// Does a result agree with the reference? The rules of --check in the graph format.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/tensor.h"

namespace maco::reference {

struct CheckResult {
  bool ok = true;
  // the largest relative error found, of the tensor or of a block (integers: how many differ)
  double error = 0;
  double bound = 0;  // that it was compared with
  std::string what;  // why it failed and where, or "" ; without the tensor's name
  // argmax and comparisons: elements that differ where the reference's values tie
  int64_t tied = 0;
  int64_t elements = 0;
  int64_t not_finite = 0;  // of them: NaN and infinities, which say nothing of the error
};

/// The bound on the relative error of a tensor of this dtype: f32 1e-5, f16 2e-3, bf16 1e-2, f8
/// 1e-1, integers 0.
double default_bound(ir::DType type);

/// The bound of each tensor of a graph: that of its dtype, or of the coarsest dtype among the
/// rounded values that it was computed from, if that is larger. (A bf16 temporary may round the
/// other way for a difference in the last bit of its f32 sum; an f32 result computed from it can't
/// be better than bf16. What was bound or only moved is exact and counts nothing.) It grows with
/// depth: times max(1, sqrt(d / 8)), d being the most roundings to a dtype of that bound on one
/// path to the tensor.
std::vector<double> bounds_of(const ir::Graph& graph);

/// Floats: NaN and infinities must be in the same places; of the rest, the Frobenius norm of the
/// difference over that of `expected`, for the tensor and for each block of 64 x 64 (rows: all axes
/// but the last), must not exceed `bound`. A block's norm is not taken below what the tensor's root
/// mean square gives a block of its size. Integers: equal.
CheckResult compare(const Tensor& actual, const Tensor& expected, double bound);

/// An argmax: where the results differ, `values` (its input, from the reference) must tie within
/// `bound`, relative to the value or the root mean square of the row's finite values, whichever is
/// larger. Infinities and NaN are chosen exactly.
CheckResult compare_argmax(const Tensor& actual, const Tensor& expected, const Tensor& values,
                           double bound);

/// A comparison of `values` with `others`, as many or in turn (from the reference): where the
/// results differ, the two must be within `bound` of each other, relative to the larger one or the
/// root mean square of `values`.
CheckResult compare_comparison(const Tensor& actual, const Tensor& expected, const Tensor& values,
                               const std::vector<double>& others, double bound);

/// Compares results of the last launch, rank by rank, with those of a reference that has run the
/// same launch.
class Checker {
 public:
  /// `rtol` replaces the bounds of floats.
  Checker(const Reference& reference, std::optional<double> rtol);
  /// A tensor that an argmax or a comparison of computed floats made is compared as one, unless
  /// that read a state, which may have changed since.
  CheckResult check(int rank, ir::TensorId tensor, const Tensor& actual) const;

 private:
  const Reference& reference_;
  std::vector<double> bounds_;
  std::vector<double> coarsest_;  // 0: the tensor has the same bits whoever computes it
};

/// Of a result that is right: "ok, worst error 0.00021 of 0.01; 3 of 1000 are not finite", of more
/// than one rank "ok on 4 ranks, worst error 0.00021 of 0.01 on rank 2".
std::string success_text(const CheckResult& result, int ranks = 1, int worst_rank = 0);

/// "'y' on rank 1: ok, worst error 0.00021 of 0.01" or "'y' on rank 1: relative error ... in rows
/// [0,64), columns ..., ...".
std::string to_line(const std::string& tensor, int rank, const CheckResult& result);

}  // namespace maco::reference
