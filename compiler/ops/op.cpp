// The context that shape rules see, and inference over a whole graph.
#include "compiler/ops/op.h"

#include <fmt/format.h>

#include "compiler/ops/attrs.h"
#include "ir/check.h"

namespace maco::ops {

using ir::DType;
using ir::Expr;
using ir::Shape;
using ir::TensorKind;

InferContext::InferContext(ir::Graph& graph, ir::OpId op, ir::Diagnostics& diagnostics)
    : graph_(graph), op_(op), diagnostics_(diagnostics) {}

Type InferContext::in(int i) const {
  const ir::Tensor& t = graph_[op().in[static_cast<size_t>(i)]];
  return {t.dtype, t.shape};
}

Expr InferContext::extent(int i, int axis) const {
  const Shape& s = graph_[op().in[static_cast<size_t>(i)]].shape;
  return s[static_cast<size_t>(axis < 0 ? axis + static_cast<int>(s.size()) : axis)];
}

bool InferContext::has(const std::string& attr) const { return op().attrs.count(attr) > 0; }

int64_t InferContext::integer(const std::string& attr, int64_t default_value) {
  auto e = expr(attr);
  if (!e) return default_value;
  if (auto v = e->constant()) return *v;
  error_attr(attr, fmt::format("'{}' of '{}' must be the same number on all ranks and in every "
                               "launch, but '{}' is not a constant",
                               attr, op().kind, e->str()));
  return default_value;
}

std::optional<Expr> InferContext::expr(const std::string& attr) const {
  return attr_expr(graph_, op(), attr);
}
std::vector<Expr> InferContext::list(const std::string& attr) const {
  return attr_list(graph_, op(), attr);
}
double InferContext::number(const std::string& attr, double d) const {
  return attr_number(op(), attr, d);
}
bool InferContext::flag(const std::string& attr, bool d) const { return attr_flag(op(), attr, d); }
std::string InferContext::word(const std::string& attr, const std::string& d) const {
  return attr_word(op(), attr, d);
}

DType InferContext::out_dtype(int i, DType otherwise) const {
  if (op().dtype) return *op().dtype;
  const ir::Tensor& t = graph_[op().out[static_cast<size_t>(i)]];
  if (t.kind == TensorKind::State || (t.kind == TensorKind::Output && !t.shape.empty()))
    return t.dtype;
  return otherwise;
}

void InferContext::set_out(int i, DType dtype, Shape shape) {
  if (failed_) return;
  for (Expr& e : shape) e = ir::canonical(e);
  const ir::TensorId id = op().out[static_cast<size_t>(i)];
  ir::Tensor& t = graph_[id];
  const bool open = t.kind == TensorKind::Temp || (t.kind == TensorKind::Output && t.shape.empty());
  if (shape.empty() || shape.size() > 4) {
    error(fmt::format("'{}' gives '{}' {} axes, but tensors have 1 to 4", op().kind, t.name,
                      shape.size()));
    return;
  }
  for (size_t a = 0; a < shape.size(); ++a) {
    const auto lookup = [this](std::string_view n) { return graph_.range_of(n); };
    if (a > 0 && !shape[a].is_constant()) {
      error(fmt::format("'{}' gives '{}' the shape {}: a dim may be in axis 0 only", op().kind,
                        t.name, to_string(shape)));
      return;
    }
    const auto range = ir::bounds(shape[a], lookup);
    if (!range || range->lo < 1) {
      error(fmt::format("'{}' gives '{}' the shape {}, whose extents must be at least 1", op().kind,
                        t.name, to_string(shape)));
      return;
    }
  }
  if (ir::max_elements(graph_, shape) > ir::kMaxTensorBytes / ir::size_of(dtype)) {
    error(fmt::format("'{}' gives '{}' the shape {}, which would take more than 2^48 bytes",
                      op().kind, t.name, to_string(shape)));
    return;
  }
  if (open) {
    t.dtype = dtype;
    t.shape = std::move(shape);
    return;
  }
  if (t.shape != shape) {
    error(fmt::format("'{}' gives '{}' the shape {}, but it is declared {}", op().kind, t.name,
                      to_string(shape), to_string(t.shape)));
    diagnostics_.note(t.loc, fmt::format("'{}' is declared here", t.name));
  } else if (t.dtype != dtype) {
    error(fmt::format("'{}' gives '{}' the type {}, but it is declared {}", op().kind, t.name,
                      ir::name(dtype), ir::name(t.dtype)));
    diagnostics_.note(t.loc, fmt::format("'{}' is declared here", t.name));
  }
}

void InferContext::error(std::string message) {
  failed_ = true;
  diagnostics_.error(op().loc, std::move(message));
}
void InferContext::error_in(int i, std::string message) {
  failed_ = true;
  const auto n = static_cast<size_t>(i);
  diagnostics_.error(n < op().in_loc.size() ? op().in_loc[n] : op().loc, std::move(message));
}
void InferContext::error_attr(const std::string& attr, std::string message) {
  failed_ = true;
  diagnostics_.error(attr_loc(attr), std::move(message));
}
void InferContext::error_at(ir::Loc loc, std::string message) {
  failed_ = true;
  diagnostics_.error(loc.known() ? loc : op().loc, std::move(message));
}
ir::Loc InferContext::attr_loc(const std::string& attr) const {
  auto it = op().attrs.find(attr);
  return it == op().attrs.end() || !it->second.loc.known() ? op().loc : it->second.loc;
}
void InferContext::note_in(int i) {
  const ir::Tensor& t = graph_[op().in[static_cast<size_t>(i)]];
  diagnostics_.note(t.loc, fmt::format("'{}' is {} here", t.name,
                                       t.kind == TensorKind::Temp ? "defined" : "declared"));
}

std::string to_string(const Shape& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? "," : "") + shape[i].str();
  return s + "]";
}

std::string describe(const ir::Graph& graph, ir::TensorId tensor) {
  return graph[tensor].name + to_string(graph[tensor].shape);
}

bool same_class(DType a, DType b) { return a == b || (ir::is_float(a) && ir::is_float(b)); }

bool infer(ir::Graph& graph, ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  const auto world = [&](std::string_view n) -> std::optional<int64_t> {
    if (n == "world") return graph.world;
    return std::nullopt;
  };
  for (ir::Tensor& t : graph.tensors) {
    if (t.kind == TensorKind::Temp) {
      t.shape.clear();
      continue;
    }
    for (Expr& e : t.shape) e = ir::canonical(ir::substitute(e, world));
  }
  std::vector<bool> bad(graph.tensors.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const OpDef* def = find_op(graph.ops[i].kind);
    MACO_CHECK(def && def->infer, graph.ops[i].kind);
    bool poisoned = false;
    for (ir::TensorId t : graph.ops[i].in) poisoned = poisoned || bad[index(t)];
    bool failed = poisoned;
    if (!poisoned) {
      InferContext context(graph, ir::id_of<ir::OpId>(i), diagnostics);
      def->infer(context);
      failed = context.failed();
    }
    // After a failure only tensors without a declared type are unknown, which avoids a cascade of
    // errors.
    for (ir::TensorId t : graph.ops[i].out)
      if (failed && graph[t].shape.empty()) bad[index(t)] = true;
  }
  return diagnostics.errors() == before;
}

}  // namespace maco::ops
