// The calls of a GraphBuilder, and the graph that they make.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "maco/graph.h"

namespace maco {

/// What a builder was told.
struct Calls {
  /// A tensor or the result of an op.
  struct Value {
    std::string name;  // empty: it has none yet
    ir::TensorKind kind = ir::TensorKind::Temp;
    DType dtype = DType::F32;
    Shape shape;
    Where where;
  };

  struct Call {
    std::string kind;
    std::vector<Tensor> operands;
    std::vector<size_t> results;
    Attrs attrs;
    Common common;
    Where where;
  };

  struct Variable {
    std::string name;
    bool scalar = false;
    int64_t lowest = 0, most = 0;  // for a scalar: the end of its range
    std::optional<int64_t> typical;
    Where where;
  };

  struct Setting {
    std::string key;
    Attr value;
    Where where;
  };

  uint64_t id = 0;  // of the builder; tensors carry it
  std::string name;
  int world = 1;
  Where where;
  std::vector<Value> values;
  std::vector<Call> calls;
  std::vector<Variable> variables;
  std::vector<Setting> settings;
  std::vector<std::string> collectives;  // texts
};

/// Makes an ir::Graph, which compiler/graph checks as it checks graphs from files. Errors are
/// reported at the place of the call; nothing after one. `names`: of all values.
std::optional<ir::Graph> graph_of(const Calls& calls, const std::vector<std::string>& names,
                                  ir::Diagnostics& diagnostics);

}  // namespace maco
