// What ops say of their rows (OpDef::refuse_stage): which of a result's need which of an input's.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace maco::ops {

/// Each part of a result needs the same part of every input.
std::string by_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// The same, but for inputs of another shape than the result: these are broadcast.
std::string by_elements(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// Each row of a result needs a row of the first input, and all of the others.
std::string by_first_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// The same of ops over the last axis, to which a tensor of one axis is one row.
std::string by_whole_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// Each row of the result needs a row of the last input, and all of the others.
std::string by_last_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// Rows stay where they are if 'axis' isn't the first.
std::string by_rows_of_axis(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);

}  // namespace maco::ops
