// Answers of ops about their rows (OpDef::refuse_stage): which of an input's rows a result's rows
// need.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace maco::ops {

/// Each part of a result needs the same part of every input.
std::string by_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// As by_rows, but inputs of another shape than the result are broadcast.
std::string by_elements(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// Each row of a result needs a row of the first input, and all rows of the others.
std::string by_first_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// As by_first_rows, for ops over the last axis, for which a tensor of one axis is one row.
std::string by_whole_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// Each row of the result needs a row of the last input, and all rows of the others.
std::string by_last_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);
/// Rows stay in place if 'axis' isn't the first.
std::string by_rows_of_axis(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut);

}  // namespace maco::ops
