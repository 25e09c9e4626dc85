// Checks that every op of a graph has a range of `sm_roles` that runs it.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

/// Reports ops that no range of `sm_roles` runs, in any variant. check_roles (check_parts.h) must
/// have passed, and shapes must be inferred.
void check_homes(const ir::Graph& graph, Report& report);

// Parts of this check, for callers that know better locations.

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
