// What `sm_roles` may say.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

/// All of a graph's `sm_roles`.
void check_roles(const ir::Graph& graph, bool internal_ops, Report& report);

// Its parts, for who knows better places.

/// Reports ranges that share SMs.
void check_disjoint(const std::vector<ir::RoleRange>& ranges, Report& report);
/// Reports kinds of ops in the graph that no range takes. `loc`: of the ranges.
void check_homes(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges, ir::Loc loc,
                 Report& report);
/// Why a range of this role can't run ops of `kind`, or "". `kind` is one of an op.
std::string why_not_in(const std::string& role, const std::string& kind);
/// Why there can't be SMs of the role 'scheduler', by `key`, or "": they are for the dynamic
/// schedule.
std::string why_no_scheduler(const ir::Graph& graph, const std::string& key);

}  // namespace maco::graph
