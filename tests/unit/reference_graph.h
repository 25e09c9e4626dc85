// Graphs made by hand, with types as inference would fill them in: for tests of what runs graphs,
// without the compiler.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace maco::test {

struct GraphMaker {
  ir::Graph graph;
  explicit GraphMaker(int64_t world = 1) {
    graph.name = "test";
    graph.world = world;
  }

  ir::TensorId tensor(const std::string& name, ir::TensorKind kind, ir::DType type,
                      std::vector<ir::Expr> shape) {
    ir::Tensor t;
    t.name = name;
    t.kind = kind;
    t.dtype = type;
    t.shape = std::move(shape);
    graph.tensors.push_back(std::move(t));
    return ir::id_of<ir::TensorId>(graph.tensors.size() - 1);
  }
  ir::TensorId scalar(const std::string& name, int64_t lo, int64_t hi) {
    const ir::TensorId id = tensor(name, ir::TensorKind::Scalar, ir::DType::I32, {});
    graph[id].range_lo = lo;
    graph[id].range_hi = hi;
    return id;
  }
  void dim(const std::string& name, int64_t most) { graph.dims.push_back({name, 1, most, {}}); }

  /// Outputs that no tensor is called by become temporaries of the given type, or of the first
  /// input's type.
  ir::Op& op(const std::string& kind, const std::vector<std::string>& in,
             const std::vector<std::string>& out, std::optional<ir::DType> type = {},
             std::vector<ir::Expr> shape = {}) {
    ir::Op o;
    o.kind = kind;
    for (const std::string& n : in) o.in.push_back(graph.find_tensor(n).value());
    for (const std::string& n : out) {
      auto id = graph.find_tensor(n);
      if (!id) {
        const ir::DType t = type ? *type : graph[o.in[0]].dtype;
        id = tensor(n, ir::TensorKind::Temp, t, shape.empty() ? graph[o.in[0]].shape : shape);
      }
      o.out.push_back(*id);
    }
    o.name = out.empty() ? kind : out[0];
    graph.ops.push_back(std::move(o));
    return graph.ops.back();
  }
};

inline ir::Attr attr(ir::AttrValue value) { return {std::move(value), {}}; }
inline ir::Attr number(int64_t n) { return attr(ir::Expr(n)); }
inline ir::Attr expr(const std::string& text) { return attr(ir::parse_expr(text).expr.value()); }

}  // namespace maco::test
