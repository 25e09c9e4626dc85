// What the parts of check_graph share.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/graph/check.h"
#include "compiler/graph/expressions.h"
#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

struct Check {
  const ir::Graph& graph;
  const CheckOptions& options;
  Report& report;
  Variables variables{};
  std::unordered_map<std::string_view, size_t> op_of{};  // by name
  int searches = 0;                                      // for near names, which are limited

  bool error(ir::Loc loc, std::string message) { return report.error(loc, std::move(message)); }
  /// The place of a graph-level key, if it is known.
  ir::Loc key(const std::string& name) const {
    const auto found = graph.key_loc.find(name);
    return found == graph.key_loc.end() ? graph.loc : found->second;
  }
  bool has_op(const std::string& name) const { return op_of.count(name) > 0; }
};

/// Reports a name that no text could have. `what`: "the name of a dim".
bool check_name(Check& c, const std::string& name, ir::Loc loc, const std::string& what);
/// Reports names that may not stand in `e`, and ranks or launches in which it has no value.
bool check_expr(Check& c, const ir::Expr& e, ir::Loc loc, const std::string& what, ExprUse use,
                const ir::Expr* guard = nullptr);

void check_dims(Check& c);
/// Returns false if an op's id refers to no tensor: then nothing else can be checked.
bool check_ids(Check& c);
void check_tensors(Check& c);
/// Checks kinds, names, operands, attributes.
void check_ops(Check& c);
void check_attrs(Check& c, const ir::Op& op);
/// Checks `after`, phases, regions and the pipeline.
void check_constraints(Check& c);

}  // namespace maco::graph
