// What `sm_roles` may say.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

/// What a graph's `sm_roles` says by itself: counts, ranges, variants.
void check_roles(const ir::Graph& graph, bool internal_ops, Report& report);
/// Whether its ranges take every op, of all variants. Presupposes check_roles and inferred shapes.
void check_homes(const ir::Graph& graph, Report& report);

// Their parts, for who knows better places.

/// Reports ranges that share SMs.
void check_disjoint(const std::vector<ir::RoleRange>& ranges, Report& report);
/// Reports kinds of ops in the graph that no range takes. `loc`: of the ranges. `inferred`: whether
/// the shapes of all tensors are known; if not, what they decide is taken to be as the ranges want.
void check_homes(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges, ir::Loc loc,
                 bool inferred, Report& report);
/// The first op of each kind that no range takes, in the graph's order: the rule for all graphs,
/// those of users and those that passes have been at.
std::vector<ir::OpId> homeless(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges,
                               bool inferred = true);
/// The role of the SMs that an op of this kind runs on: "compute" or "comm".
std::string role_of(const std::string& kind);
/// Why a range of this role can't run ops of `kind`, or "". `kind` is one of an op.
std::string why_not_in(const std::string& role, const std::string& kind);
/// Why there can't be SMs of the role 'scheduler', by `key`, or "": they are for the dynamic
/// schedule.
std::string why_no_scheduler(const ir::Graph& graph, const std::string& key);

}  // namespace maco::graph
