// Reads attributes by name, for shape rules and tile rules. Their types were checked against the
// schema when the graph was built.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace maco::ops {

/// The attribute's expression with `world` substituted and constants folded; nothing if the
/// attribute is absent.
std::optional<ir::Expr> attr_expr(const ir::Graph& graph, const ir::Op& op,
                                  const std::string& attr);
std::vector<ir::Expr> attr_list(const ir::Graph& graph, const ir::Op& op, const std::string& attr);
double attr_number(const ir::Op& op, const std::string& attr, double default_value);
bool attr_flag(const ir::Op& op, const std::string& attr, bool default_value);
std::string attr_word(const ir::Op& op, const std::string& attr, const std::string& default_value);

/// Whether what a graph says of collectives (overlap, overlap groups) concerns the op. It is a
/// collective, or was one and became a copy in a world of one.
bool is_collective(const ir::Op& op);

/// Does it wait for all ops before it, and do all behind wait for it? A barrier, or a collective
/// that overlaps with nothing.
bool runs_alone(const ir::Graph& graph, const ir::Op& op);

}  // namespace maco::ops
