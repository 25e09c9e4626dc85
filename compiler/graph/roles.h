// Whether the ranges of `sm_roles` take every op.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

/// Whether its ranges take every op, in all variants. check_roles (check_parts.h) must have passed,
/// and shapes must be inferred.
void check_homes(const ir::Graph& graph, Report& report);

// The parts of this check, for callers who know better places.

/// Reports kinds of ops in the graph that no range takes. `loc`: the place of the ranges.
/// `inferred`: whether the shapes of all tensors are known; if not, conditions on shapes are taken
/// to hold.
void check_homes(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges, ir::Loc loc,
                 bool inferred, Report& report);
/// The first op of each kind that no range takes, in the graph's order. The rule holds for users'
/// graphs and for those behind passes.
std::vector<ir::OpId> homeless(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges,
                               bool inferred = true);
/// The role of the SMs that an op of this kind runs on: "compute" or "comm".
std::string role_of(const std::string& kind);
/// Why a range of this role can't run ops of `kind`, or "". `kind` must be an op's.
std::string why_not_in(const std::string& role, const std::string& kind);

}  // namespace maco::graph
