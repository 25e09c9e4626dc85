// A GraphBuilder records its calls; calls.h makes the graph of them.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "maco/graph.h"
#include "runtime/api/calls.h"
#include "runtime/api/convert.h"

namespace maco {

namespace {

using Call = Calls::Call;
using Value = Calls::Value;

// A builder's id, unique in the process.
uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

struct GraphBuilder::State : Calls {
  State() { id = next_id(); }
};

namespace {

// Names of the values; a value without one gets its op's kind and a number.
std::vector<std::string> names_of(const std::vector<Value>& values,
                                  const std::vector<Call>& calls) {
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (const Value& v : values) {
    names.push_back(v.name);
    taken.insert(v.name);
  }
  for (const Call& call : calls) taken.insert(call.common.name);
  std::map<std::string, int64_t> numbers;  // by kind: the next number to try
  for (const Call& call : calls) {
    int64_t& number = numbers[call.kind];
    for (size_t result : call.results) {
      while (names[result].empty()) {
        std::string name = fmt::format("{}.{}", call.kind, number++);
        if (taken.insert(name).second) names[result] = std::move(name);
      }
    }
  }
  return names;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, int world, Where where)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->world = world;
  state_->where = where;
}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

Expr GraphBuilder::dim(std::string name, int64_t most, DimRange range, Where where) {
  state_->variables.push_back({name, false, range.lowest, most, range.typical, where});
  return Expr(std::move(name));
}

Expr GraphBuilder::scalar(std::string name, int64_t lowest, int64_t end,
                          std::optional<int64_t> typical, Where where) {
  state_->variables.push_back({name, true, lowest, end, typical, where});
  return Expr(std::move(name));
}

Tensor GraphBuilder::declare(const char* kind, std::string name, DType type, Shape shape,
                             Where where) {
  const std::string_view word = kind;
  const auto declared = word == "input"   ? ir::TensorKind::Input
                        : word == "param" ? ir::TensorKind::Param
                                          : ir::TensorKind::State;
  state_->values.push_back({std::move(name), declared, type, std::move(shape), where});
  return {state_->id, state_->values.size() - 1};
}
Tensor GraphBuilder::input(std::string name, DType type, Shape shape, Where where) {
  return declare("input", std::move(name), type, std::move(shape), where);
}
Tensor GraphBuilder::param(std::string name, DType type, Shape shape, Where where) {
  return declare("param", std::move(name), type, std::move(shape), where);
}
Tensor GraphBuilder::state(std::string name, DType type, Shape shape, Where where) {
  return declare("state", std::move(name), type, std::move(shape), where);
}

Tensor GraphBuilder::output(std::string name, Tensor tensor, Where where) {
  if (tensor.builder == state_->id && tensor.index < state_->values.size()) {
    Value& value = state_->values[tensor.index];
    if (value.kind == ir::TensorKind::Temp && (value.name.empty() || value.name == name)) {
      value.name = std::move(name);
      value.kind = ir::TensorKind::Output;
      return tensor;
    }
  }
  Common common;
  common.name = name;
  const Tensor copied = copy(tensor, common, where);
  state_->values[copied.index].kind = ir::TensorKind::Output;
  return copied;
}

std::vector<Tensor> GraphBuilder::ops(std::string kind, std::vector<Tensor> operands,
                                      size_t results, Attrs attrs, const Common& common,
                                      Where where) {
  Call call{std::move(kind), std::move(operands), {}, std::move(attrs), common, where};
  std::vector<Tensor> made;
  for (size_t i = 0; i < results; ++i) {
    const bool into = i == 0 && common.into && common.into->builder == state_->id &&
                      common.into->index < state_->values.size();
    if (!into) {
      std::string name =
          i == 0 || common.name.empty() ? common.name : fmt::format("{}.{}", common.name, i);
      state_->values.push_back({std::move(name), ir::TensorKind::Temp, DType::F32, {}, where});
    }
    made.push_back(into ? *common.into : Tensor{state_->id, state_->values.size() - 1});
    call.results.push_back(made.back().index);
  }
  state_->calls.push_back(std::move(call));
  return made;
}

void GraphBuilder::set(std::string key, Attr value, Where where) {
  state_->settings.push_back({std::move(key), std::move(value), where});
}

void GraphBuilder::collectives(std::string text) { state_->collectives.push_back(std::move(text)); }

Result<Graph> GraphBuilder::build() const {
  return guarded([&] { return built(*state_); });
}

Result<Graph> GraphBuilder::built(const State& s) {
  ir::Diagnostics diagnostics;
  auto graph = graph_of(s, names_of(s.values, s.calls), diagnostics);
  if (!graph) return graph_error(diagnostics);
  diagnostics.clear();
  return Graph(
      std::make_shared<const Graph::Data>(Graph::Data{std::move(*graph), std::move(diagnostics)}));
}

// ---- attributes ---------------------------------------------------------------------------------

Attrs GraphBuilder::list(const MatmulAttrs& a) {
  Attrs attrs;
  if (a.transpose_b) attrs.emplace_back("transpose_b", true);
  if (a.activation != "none") attrs.emplace_back("activation", a.activation);
  return attrs;
}

Attrs GraphBuilder::list(const RopeAttrs& a) {
  Attrs attrs = {{"head_dim", a.head_dim}};
  if (a.position) attrs.emplace_back("position", *a.position);
  attrs.emplace_back("theta", a.theta);
  if (a.interleaved) attrs.emplace_back("interleaved", true);
  if (!a.scaling.empty()) attrs.emplace_back("scaling", a.scaling);
  if (a.rotary_dim != 0) attrs.emplace_back("rotary_dim", a.rotary_dim);
  if (a.attention_factor != 1) attrs.emplace_back("attention_factor", a.attention_factor);
  return attrs;
}

Attrs GraphBuilder::list_given(const RopeAttrs& a) {
  Attrs attrs = list(a);
  if (a.theta == RopeAttrs{}.theta)
    std::erase_if(attrs, [](auto& one) { return one.first == "theta"; });
  return attrs;
}

Attrs GraphBuilder::list(const AttentionAttrs& a) {
  Attrs attrs = {{"head_dim", a.head_dim}};
  if (a.causal) attrs.emplace_back("causal", true);
  if (a.scale) attrs.emplace_back("scale", *a.scale);
  if (a.length) attrs.emplace_back("length", *a.length);
  if (a.window) attrs.emplace_back("window", *a.window);
  if (a.softcap) attrs.emplace_back("softcap", *a.softcap);
  return attrs;
}

Attrs GraphBuilder::list(const SliceAttrs& a) {
  Attrs attrs = {{"axis", a.axis}};
  if (a.begin) attrs.emplace_back("begin", *a.begin);
  if (a.end) attrs.emplace_back("end", *a.end);
  if (a.step != 1) attrs.emplace_back("step", a.step);
  return attrs;
}

Attrs GraphBuilder::list(const ReduceAttrs& a) {
  return {{"reduce", a.reduce}, {"algorithm", a.algorithm}};
}

}  // namespace maco
