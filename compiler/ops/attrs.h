// Attributes by name, as shape rules and tile rules read them. Types were checked against the
// schema when the graph was built.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace maco::ops {

/// With `world` substituted and folded; nothing if the attribute is absent.
std::optional<ir::Expr> attr_expr(const ir::Graph& graph, const ir::Op& op,
                                  const std::string& attr);
std::vector<ir::Expr> attr_list(const ir::Graph& graph, const ir::Op& op, const std::string& attr);
double attr_number(const ir::Op& op, const std::string& attr, double default_value);
bool attr_flag(const ir::Op& op, const std::string& attr, bool default_value);
std::string attr_word(const ir::Op& op, const std::string& attr, const std::string& default_value);

/// Does what graphs say of collectives (overlap, overlap groups) concern the op? It is one, or was
/// one and is a copy in a world of one.
bool is_collective(const ir::Op& op);

}  // namespace maco::ops
