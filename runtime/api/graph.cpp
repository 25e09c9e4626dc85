#include "maco/graph.h"

#include <memory>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "runtime/api/convert.h"

namespace maco {

namespace {

TensorKind public_kind(ir::TensorKind kind) {
  switch (kind) {
    case ir::TensorKind::Param: return TensorKind::Param;
    case ir::TensorKind::State: return TensorKind::State;
    case ir::TensorKind::Output: return TensorKind::Output;
    default: return TensorKind::Input;
  }
}

}  // namespace

Result<Graph> Graph::parse(std::string text, std::string name,
                           const std::vector<std::string>& collectives) {
  return guarded([&]() -> Result<Graph> {
    ir::Diagnostics diagnostics;
    auto graph = api::read_graph_with(std::move(name), std::move(text), collectives, diagnostics);
    if (!graph) return graph_error(diagnostics);
    diagnostics.clear();
    return Graph(std::make_shared<const Data>(Data{std::move(*graph), std::move(diagnostics)}));
  });
}

Result<Graph> Graph::read(const std::string& path) {
  return guarded([&]() -> Result<Graph> {
    std::string why;
    auto text = api::read_file(path, why);
    if (!text) return error(ErrorCode::InvalidArgument, std::move(why));
    return parse(std::move(*text), path);
  });
}

const std::string& Graph::name() const { return data_->graph.name; }
int Graph::world() const { return static_cast<int>(data_->graph.world); }

std::vector<TensorInfo> Graph::tensors() const {
  const ir::Graph& graph = data_->graph;
  const auto most = [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "world") return graph.world;
    const ir::Dim* dim = graph.find_dim(name);
    return dim ? std::optional(dim->max) : std::nullopt;
  };
  std::vector<TensorInfo> list;
  for (const ir::Tensor& t : graph.tensors) {
    if (t.kind == ir::TensorKind::Temp || t.kind == ir::TensorKind::Scalar) continue;
    list.push_back(tensor_info(t.name, public_kind(t.kind), t.dtype, t.shape,
                               ir::max_elements(graph, t.shape), most));
  }
  return list;
}

std::vector<VariableInfo> Graph::dims() const {
  std::vector<VariableInfo> list;
  for (const ir::Dim& dim : data_->graph.dims) list.push_back({dim.name, dim.min, dim.max});
  return list;
}

std::vector<VariableInfo> Graph::scalars() const {
  std::vector<VariableInfo> list;
  for (const ir::Tensor& t : data_->graph.tensors)
    if (t.kind == ir::TensorKind::Scalar) list.push_back({t.name, t.range_lo, t.range_hi - 1});
  return list;
}

Result<std::string> import_plan(std::string json, int64_t elements, DType dtype) {
  return guarded([&]() -> Result<std::string> {
    ir::Diagnostics diagnostics;
    auto text = api::import_plan("<plan>", std::move(json), elements, ir_type(dtype), diagnostics);
    if (!text) return graph_error(diagnostics);
    return std::move(*text);
  });
}

std::string Graph::to_maco() const { return frontend::print_dsl(data_->graph); }
std::string Graph::to_json() const { return frontend::print_json(data_->graph); }

}  // namespace maco
