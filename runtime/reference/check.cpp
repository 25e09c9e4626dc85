#include "runtime/reference/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/reference/ops.h"

namespace maco::reference {

namespace {

constexpr int64_t kBlock = 64;

// "[3,17]" for element i.
std::string place(const Tensor& t, int64_t i) {
  Extents index(t.shape.size());
  for (size_t a = index.size(); a-- > 0; i /= t.shape[a]) index[a] = i % t.shape[a];
  return to_string(index);
}

CheckResult failure(double error, double bound, std::string what) {
  CheckResult r;
  r.ok = false;
  r.error = error;
  r.bound = bound;
  r.what = std::move(what);
  return r;
}

bool same_kind(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::isinf(a) || std::isinf(b) ? a == b : true;
}

CheckResult compare_integers(const Tensor& actual, const Tensor& expected) {
  int64_t differ = 0, first = -1;
  const std::vector<int32_t> a = actual.integers(), e = expected.integers();
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != e[i] && differ++ == 0) first = static_cast<int64_t>(i);
  if (differ == 0) return {};
  const auto f = static_cast<size_t>(first);
  return failure(static_cast<double>(differ), 0,
                 fmt::format("{} of {} elements differ, the first at {}: {}, expected {}", differ,
                             a.size(), place(expected, first), a[f], e[f]));
}

std::string types_differ(const Tensor& actual, const Tensor& expected) {
  if (actual.dtype == expected.dtype && actual.shape == expected.shape) return "";
  return fmt::format("it is {}, expected {}", describe(actual.dtype, actual.shape),
                     describe(expected.dtype, expected.shape));
}

// A relative error; only a difference of zero is close to a norm of zero.
double ratio(double difference, double norm) {
  if (difference == 0) return 0;
  return norm == 0 ? INFINITY : difference / norm;
}

}  // namespace

double default_bound(ir::DType type) {
  switch (type) {
    case ir::DType::F32: return 1e-5;
    case ir::DType::F16: return 2e-3;
    case ir::DType::BF16: return 1e-2;
    case ir::DType::F8E4M3:
    case ir::DType::F8E5M2: return 1e-1;
    case ir::DType::I32:
    case ir::DType::U8: return 0;
  }
  return 0;
}

namespace {

// How often the op rounds along one path: `ring` rounds a sum at each rank that it reaches, and so
// may NCCL and a user's algorithm.
int64_t roundings_in(const ir::Graph& graph, const ir::Op& op) {
  const auto word = [&](const char* attr, const char* otherwise) -> std::string {
    const auto it = op.attrs.find(attr);
    const auto* w = it == op.attrs.end() ? nullptr : std::get_if<std::string>(&it->second.value);
    return w ? *w : otherwise;
  };
  const std::string algorithm = word("algorithm", "");
  const bool nccl = algorithm == "nccl" || (graph.backend == ir::Backend::Nccl &&
                                            (algorithm.empty() || algorithm == "auto"));
  const bool hops =
      (algorithm == "ring" || nccl || graph.find_algorithm(algorithm)) &&
      (op.kind == "allreduce" || op.kind == "reduce_scatter") &&
      ir::ring_rounds(graph[op.in[0]].dtype, graph[op.out[0]].dtype, word("reduce", "sum"));
  return hops ? std::max<int64_t>(1, graph.world - 1) : 1;
}

// By tensor: the most roundings to a dtype of this bound on one path to it, within a launch.
// `sent`: the same for what other ranks send.
std::vector<int64_t> roundings_behind(const ir::Graph& graph, const std::vector<Move>& moves,
                                      double bound, const std::vector<int64_t>& sent) {
  std::vector<int64_t> most(graph.tensors.size(), 0);
  std::vector<std::vector<ir::TensorId>> moved(graph.tensors.size());  // by where to: from where
  for (const Move& move : moves) moved[ir::index(move.to)].push_back(move.from);
  for (const ir::Op& op : graph.ops) {
    int64_t before = 0;
    for (ir::TensorId in : op.in) before = std::max(before, most[ir::index(in)]);
    for (ir::TensorId out : op.out) {
      int64_t n = before;
      for (ir::TensorId from : moved[ir::index(out)])
        n = std::max(n, op.kind == "recv" ? sent[ir::index(from)] : most[ir::index(from)]);
      if (!only_moves(op) && default_bound(graph[out].dtype) == bound) n += roundings_in(graph, op);
      most[ir::index(out)] = std::max(most[ir::index(out)], n);
    }
  }
  return most;
}
// A path goes through each rank at most once.
std::vector<int64_t> roundings_of(const ir::Graph& graph, const std::vector<Move>& moves,
                                  double bound) {
  std::vector<int64_t> most(graph.tensors.size(), 0);
  for (int64_t rank = 0; rank < graph.world; ++rank) {
    std::vector<int64_t> behind = roundings_behind(graph, moves, bound, most);
    if (behind == most) break;
    most = std::move(behind);
  }
  return most;
}

// A rounding in the last place that goes the other way becomes noise of that size in everything
// that follows.
double with_depth(double bound, int64_t roundings) {
  constexpr double kShallow = 8;
  return bound * std::sqrt(std::max(1.0, static_cast<double>(roundings) / kShallow));
}

// By tensor: the coarsest rounding among values that may differ. 0: tensors that were bound, and
// those moved or converted from these, are the same everywhere.
std::vector<double> coarsest_of(const ir::Graph& graph, const std::vector<Move>& moves) {
  std::vector<double> coarsest(graph.tensors.size(), 0);
  for (bool changed = true; changed;) {  // states lead back to earlier ops, recv to later sends
    changed = false;
    const auto raise = [&](ir::TensorId to, double from) {
      double& old = coarsest[ir::index(to)];
      const double value = std::max(from, default_bound(graph[to].dtype));
      if (value > old) old = value, changed = true;
    };
    for (const Move& move : moves)
      if (const double from = coarsest[ir::index(move.from)]; from > 0) raise(move.to, from);
    for (const ir::Op& op : graph.ops) {
      if (only_moves(op)) continue;
      double from = 0;
      for (ir::TensorId in : op.in) from = std::max(from, coarsest[ir::index(in)]);
      for (ir::TensorId out : op.out) raise(out, from);
    }
  }
  return coarsest;
}
}  // namespace

std::vector<double> bounds_of(const ir::Graph& graph) {
  const std::vector<Move> moves = moves_of(graph);
  std::vector<double> coarsest = coarsest_of(graph, moves);
  std::map<double, std::vector<int64_t>> roundings;  // by bound
  for (size_t t = 0; t < coarsest.size(); ++t) {
    double& bound = coarsest[t];
    bound = std::max(bound, default_bound(graph.tensors[t].dtype));
    const auto [depths, fresh] = roundings.try_emplace(bound);
    if (fresh) depths->second = roundings_of(graph, moves, bound);
    bound = with_depth(bound, depths->second[t]);
  }
  return coarsest;
}

// Whether memory that nothing wrote holds ones, at least in maco-run.
bool is_blank(const Tensor& tensor, size_t i) {
  const std::byte* at = tensor.element(static_cast<int64_t>(i));
  return std::all_of(at, at + ir::size_of(tensor.dtype),
                     [](std::byte b) { return b == std::byte{0xff}; });
}

CheckResult compare(const Tensor& actual, const Tensor& expected, double bound) {
  if (const std::string what = types_differ(actual, expected); !what.empty())
    return failure(INFINITY, bound, what);
  if (!ir::is_float(expected.dtype)) return compare_integers(actual, expected);

  const std::vector<double> a = actual.doubles(), e = expected.doubles();
  double largest = 0;
  int64_t not_finite = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (!same_kind(a[i], e[i]))
      return failure(INFINITY, bound,
                     fmt::format("{} where {} is expected, at {}{}", a[i], e[i],
                                 place(expected, static_cast<int64_t>(i)),
                                 std::isnan(a[i]) && std::isfinite(e[i]) && is_blank(actual, i)
                                     ? ", which nothing seems to have written"
                                     : ""));
    if (std::isfinite(e[i]))
      largest = std::max({largest, std::abs(a[i]), std::abs(e[i])});
    else
      ++not_finite;
  }
  // Squares of values divided by the largest neither overflow nor vanish.
  const double scale = largest > 0 ? 1 / largest : 1;
  const int64_t rows = expected.rows(), cols = expected.cols();
  const int64_t down = (rows + kBlock - 1) / kBlock, across = (cols + kBlock - 1) / kBlock;
  std::vector<double> norm(static_cast<size_t>(down * across)), difference(norm.size());
  double all_norm = 0, all_difference = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<size_t>(r * cols + c),
                 b = static_cast<size_t>(r / kBlock * across + c / kBlock);
      if (!std::isfinite(e[i])) continue;
      const double x = e[i] * scale, d = a[i] * scale - x;
      norm[b] += x * x;
      difference[b] += d * d;
    }
  for (size_t b = 0; b < norm.size(); ++b) all_norm += norm[b], all_difference += difference[b];

  CheckResult result;
  result.bound = bound;
  result.elements = expected.elements();
  result.not_finite = not_finite;
  result.error = ratio(std::sqrt(all_difference), std::sqrt(all_norm));
  std::string where = "in the whole tensor";
  const double mean_square = all_norm / static_cast<double>(rows * cols);
  int64_t r0 = 0, r1 = rows, c0 = 0, c1 = cols;
  for (int64_t br = 0; br < down; ++br)
    for (int64_t bc = 0; bc < across; ++bc) {
      const auto b = static_cast<size_t>(br * across + bc);
      const int64_t r_end = std::min(rows, (br + 1) * kBlock),
                    c_end = std::min(cols, (bc + 1) * kBlock);
      const auto size = static_cast<double>((r_end - br * kBlock) * (c_end - bc * kBlock));
      const double error =
          ratio(std::sqrt(difference[b]), std::sqrt(std::max(norm[b], mean_square * size)));
      if (error <= result.error) continue;
      result.error = error;
      r0 = br * kBlock, r1 = r_end, c0 = bc * kBlock, c1 = c_end;
      where = fmt::format("in rows [{},{}), columns [{},{})", r0, r1, c0, c1);
    }
  if (result.error <= bound) return result;

  int64_t worst = r0 * cols + c0;
  double most = -1;
  for (int64_t r = r0; r < r1; ++r)
    for (int64_t c = c0; c < c1; ++c) {
      const auto i = static_cast<size_t>(r * cols + c);
      if (!std::isfinite(e[i]) || std::abs(a[i] - e[i]) <= most) continue;
      most = std::abs(a[i] - e[i]);
      worst = r * cols + c;
    }
  const auto w = static_cast<size_t>(worst);
  result.ok = false;
  result.what = fmt::format(
      "relative error {:.3g} {}, more than {:.3g}; the largest difference is at {}: {:.9g}, "
      "expected {:.9g}",
      result.error, where, bound, place(expected, worst), a[w], e[w]);
  return result;
}

CheckResult compare_argmax(const Tensor& actual, const Tensor& expected, const Tensor& values,
                           double bound) {
  if (const std::string what = types_differ(actual, expected); !what.empty())
    return failure(INFINITY, 0, what);
  const std::vector<int32_t> a = actual.integers(), e = expected.integers();
  const int64_t n = values.cols();
  CheckResult result;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i]) continue;
    const auto row = static_cast<int64_t>(i) * n;
    const std::string at = place(expected, static_cast<int64_t>(i));
    if (a[i] < 0 || a[i] >= n)
      return failure(
          1, 0, fmt::format("{} at {} is no index of {} values, expected {}", a[i], at, n, e[i]));
    const double got = values.at(row + a[i]), best = values.at(row + e[i]);
    double squares = 0;
    for (int64_t j = 0; j < n; ++j)
      if (const double value = values.at(row + j); std::isfinite(value)) squares += value * value;
    const double room =
        bound * std::max(std::abs(best), std::sqrt(squares / static_cast<double>(n)));
    // Infinities are where the reference has them, so that nothing may tie with one.
    if (!std::isfinite(best) || !(best - got <= room))
      return failure(
          1, 0,
          fmt::format("{} at {}, whose value is {:.9g}; expected {}, whose value is {:.9g}", a[i],
                      at, got, e[i], best));
    ++result.tied;
  }
  return result;
}

CheckResult compare_comparison(const Tensor& actual, const Tensor& expected, const Tensor& values,
                               const std::vector<double>& others, double bound) {
  if (const std::string what = types_differ(actual, expected); !what.empty())
    return failure(INFINITY, 0, what);
  const std::vector<double> a = actual.doubles(), e = expected.doubles(), v = values.doubles();
  double squares = 0;
  for (const double value : v)
    if (std::isfinite(value)) squares += value * value;
  const double mean = std::sqrt(squares / static_cast<double>(v.size()));
  CheckResult result;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i]) continue;
    const double other = others[i % others.size()];
    // NaN and infinities are where the reference has them.
    const bool near =
        std::isfinite(v[i]) && std::isfinite(other) &&
        std::abs(v[i] - other) <= bound * std::max({std::abs(v[i]), std::abs(other), mean});
    if (!near || (a[i] != 0 && a[i] != 1))
      return failure(
          1, 0,
          fmt::format("{} at {}, where {:.9g} is compared with {:.9g}; expected {}", a[i],
                      place(expected, static_cast<int64_t>(i)), v[i], other, e[i]));
    ++result.tied;
  }
  return result;
}

Checker::Checker(const Reference& reference, std::optional<double> rtol)
    : reference_(reference),
      bounds_(bounds_of(reference.graph())),
      coarsest_(coarsest_of(reference.graph(), moves_of(reference.graph()))) {
  if (!rtol) return;
  for (size_t t = 0; t < bounds_.size(); ++t)
    if (ir::is_float(reference.graph().tensors[t].dtype)) bounds_[t] = *rtol;
}

CheckResult Checker::check(int rank, ir::TensorId tensor, const Tensor& actual) const {
  const ir::Graph& graph = reference_.graph();
  for (const ir::Op& op : graph.ops)
    if (op.kind == "argmax" && op.out[0] == tensor && graph[op.in[0]].kind != ir::TensorKind::State)
      return compare_argmax(actual, reference_.get(rank, tensor), reference_.get(rank, op.in[0]),
                            bounds_[ir::index(op.in[0])]);
  for (const ir::Op& op : graph.ops) {
    if (op.out.empty() || op.out[0] != tensor || !is_comparison(op.kind) ||
        !ir::is_float(graph[op.in[0]].dtype))
      continue;
    const auto is_state = [&](ir::TensorId t) { return graph[t].kind == ir::TensorKind::State; };
    const auto is_exact = [&](ir::TensorId t) { return coarsest_[ir::index(t)] == 0; };
    if (std::any_of(op.in.begin(), op.in.end(), is_state) ||
        std::all_of(op.in.begin(), op.in.end(), is_exact))
      break;
    double bound = 0;
    for (const ir::TensorId t : op.in) bound = std::max(bound, bounds_[ir::index(t)]);
    return compare_comparison(
        actual, reference_.get(rank, tensor), reference_.get(rank, op.in[0]),
        op.in.size() > 1 ? reference_.get(rank, op.in[1]).doubles() : compared_number(op), bound);
  }
  return compare(actual, reference_.get(rank, tensor), bounds_[ir::index(tensor)]);
}

std::string success_text(const CheckResult& result, int ranks, int worst_rank) {
  std::string text = "ok";
  if (ranks > 1) text += fmt::format(" on {} ranks", ranks);
  if (result.bound > 0)
    text += fmt::format(", worst error {:.2g} of {:.2g}", result.error, result.bound);
  else if (result.tied > 0)
    text += fmt::format(", equal but for {} tie{}", result.tied, result.tied == 1 ? "" : "s");
  else
    text += ", equal";
  if (ranks > 1 && result.bound > 0) text += fmt::format(" on rank {}", worst_rank);
  if (result.not_finite > 0)
    text += fmt::format("; {} of {} {} not finite", result.not_finite, result.elements,
                        result.not_finite == 1 ? "is" : "are");
  return text;
}

std::string to_line(const std::string& tensor, int rank, const CheckResult& result) {
  return fmt::format("'{}' on rank {}: {}", tensor, rank,
                     result.ok ? success_text(result) : result.what);
}

}  // namespace maco::reference
