// The forms in which an op can be written: each attribute given or not, each of its words, numbers
// of operands, kinds of bounds. Most follow from the registry of ops, so that new ops, attributes
// and words are included.
#pragma once

#include <string>
#include <vector>

#include "ir/dtype.h"
#include "ir/graph.h"

namespace maco::fuzz {

/// What an op counts as: its kind, or for an all-reduce its algorithm ("allreduce oneshot").
std::string feature_of(const ir::Op& op);
/// All forms of a feature that this version compiles.
std::vector<std::string> all_forms(const std::string& feature);
/// Whether an op whose first operand has `dtype`, which the feature takes, can have the form.
bool takes_form(const std::string& feature, const std::string& form, ir::DType dtype);
/// The forms that an op of an inferred graph has.
std::vector<std::string> forms_of(const ir::Graph& graph, const ir::Op& op);

/// What a graph as a whole can have: overlap, priorities, phases, ...
const std::vector<std::string>& all_settings();
std::vector<std::string> settings_of(const ir::Graph& graph);

/// Ops of the registry that the random graphs don't know, and features that aren't in it.
std::vector<std::string> unknown_features();

}  // namespace maco::fuzz
