#include "ir/graph.h"

#include <limits>
#include <tuple>

#include "ir/check.h"

namespace maco::ir {

std::string_view name(TensorKind kind) {
  constexpr std::string_view names[] = {"input", "param", "state", "scalar", "output", "temp"};
  return names[static_cast<size_t>(kind)];
}

std::string_view name(Overlap v) {
  constexpr std::string_view names[] = {"none", "conservative", "aggressive"};
  return names[static_cast<size_t>(v)];
}

std::string_view name(Schedule v) {
  constexpr std::string_view names[] = {"static", "dynamic"};
  return names[static_cast<size_t>(v)];
}

std::string_view name(Backend v) {
  constexpr std::string_view names[] = {"p2p", "nccl", "nvshmem"};
  return names[static_cast<size_t>(v)];
}

const AttrTree* AttrTree::find(std::string_view key) const {
  if (const Map* map = std::get_if<Map>(&value))
    for (const Entry& e : *map)
      if (e.key == key) return &e.value;
  return nullptr;
}

std::string AttrTree::text() const {
  if (const Expr* e = std::get_if<Expr>(&value)) return e->str();
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "";
}

bool operator==(const AttrTree& a, const AttrTree& b) { return a.value == b.value; }

namespace {

std::map<std::string_view, const Tensor*> declared_tensors(const Graph& graph) {
  std::map<std::string_view, const Tensor*> result;
  for (const Tensor& t : graph.tensors)
    if (t.kind != TensorKind::Temp) result.emplace(t.name, &t);
  return result;
}

bool same_declarations(const Graph& a, const Graph& b) {
  auto left = declared_tensors(a), right = declared_tensors(b);
  if (left.size() != right.size()) return false;
  for (const auto& [name, tensor] : left) {
    auto other = right.find(name);
    if (other == right.end() || *tensor != *other->second) return false;
  }
  return true;
}

bool same_operands(const Graph& a, const std::vector<TensorId>& x, const Graph& b,
                   const std::vector<TensorId>& y) {
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i)
    if (a[x[i]].name != b[y[i]].name) return false;
  return true;
}

bool same_op(const Graph& a, const Op& x, const Graph& b, const Op& y) {
  auto fields = [](const Op& op) {
    return std::tie(op.kind, op.name, op.named, op.attrs, op.dtype, op.after, op.phase, op.overlap,
                    op.overlap_group, op.priority);
  };
  return fields(x) == fields(y) && same_operands(a, x.in, b, y.in) &&
         same_operands(a, x.out, b, y.out);
}

}  // namespace

// Tensors compare by name, because neither their order nor their ids have a meaning: JSON declares
// all of them first, the DSL declares an output where it is defined.
bool operator==(const Graph& a, const Graph& b) {
  auto keys = [](const Graph& g) {
    return std::tie(g.name, g.world, g.dims, g.sm_roles, g.schedule, g.overlap, g.overlap_regions,
                    g.phases, g.pipeline, g.backend, g.comm_buffer_bytes, g.cuda_units,
                    g.algorithms);
  };
  if (keys(a) != keys(b) || a.ops.size() != b.ops.size() || !same_declarations(a, b)) return false;
  for (size_t i = 0; i < a.ops.size(); ++i)
    if (!same_op(a, a.ops[i], b, b.ops[i])) return false;
  return true;
}

std::optional<TensorId> Graph::find_tensor(std::string_view wanted) const {
  const auto i = tensor_index_.find(tensors, wanted);
  return i ? std::optional(id_of<TensorId>(*i)) : std::nullopt;
}

std::optional<OpId> Graph::find_op(std::string_view wanted) const {
  const auto i = op_index_.find(ops, wanted);
  return i ? std::optional(id_of<OpId>(*i)) : std::nullopt;
}

const Dim* Graph::find_dim(std::string_view wanted) const {
  for (const Dim& dim : dims)
    if (dim.name == wanted) return &dim;
  return nullptr;
}

const CudaUnit* Graph::find_cuda_unit(std::string_view wanted) const {
  for (const CudaUnit& unit : cuda_units)
    if (unit.name == wanted) return &unit;
  return nullptr;
}

const UserAlgorithm* Graph::find_algorithm(std::string_view wanted) const {
  for (const UserAlgorithm& a : algorithms)
    if (a.name == wanted) return &a;
  return nullptr;
}

std::optional<Interval> Graph::range_of(std::string_view wanted) const {
  if (wanted == "rank") return Interval{0, world - 1};
  if (wanted == "world") return Interval{world, world};
  if (const Dim* dim = find_dim(wanted)) return Interval{dim->min, dim->max};
  if (auto id = find_tensor(wanted)) {
    const Tensor& t = (*this)[*id];
    if (t.kind == TensorKind::Scalar) return Interval{t.range_lo, t.range_hi - 1};
  }
  return std::nullopt;
}

std::optional<int64_t> Graph::typical_of(std::string_view wanted) const {
  if (const Dim* dim = find_dim(wanted)) return dim->typical.value_or(dim->max);
  if (const auto id = find_tensor(wanted))
    if (const auto typical = (*this)[*id].typical) return typical;
  const auto range = range_of(wanted);
  return range ? std::optional(middle(*range)) : std::nullopt;
}

int64_t max_elements(const Graph& graph, const Shape& shape) {
  auto maximum = [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "world") return graph.world;
    if (const Dim* dim = graph.find_dim(name)) return dim->max;
    return std::nullopt;
  };
  int64_t product = 1;
  for (const Expr& extent : shape) {
    EvalResult r = evaluate(extent, maximum);
    MACO_CHECK(r.value.has_value(), "shape entry '" + extent.str() + "': " + r.error);
    if (__builtin_mul_overflow(product, *r.value, &product))
      return std::numeric_limits<int64_t>::max();
  }
  return product;
}

}  // namespace maco::ir
