// The rules that the pass `fuse` asks: which ops are faster as one op, and how they become one. A
// rule is a file of this folder and a line in rules.cpp; rules from outside are registered.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

class Groups;  // groups.h
struct Group;

/// What --no-fuse says instead of the names of all rules.
inline constexpr const char* kAllRules = "all";

/// Exactly one of `fold` and `join` is set.
struct FuseRule {
  std::string name;     // of the stage, as --no-fuse takes it
  std::string summary;  // which ops become one op
  /// Folds everything in the graph that the rule knows. Returns false if it has reported an error.
  bool (*fold)(ir::Graph&, PassContext&) = nullptr;
  /// Adds to a group of elementwise ops what can be one op with them. All such rules are asked
  /// about a group, in the order of the table, before the next group is looked for.
  void (*join)(const Groups&, Group&) = nullptr;
  /// Whether the rule reads the algorithms of collectives. The others are also asked before
  /// algorithms are chosen (choose_collectives.cpp), on a copy of the graph.
  bool knows_algorithms = false;
  /// Whether the rule is asked where `sm_roles` or a pipeline name ops. Other rules leave such
  /// graphs alone, so that each op keeps its kind.
  bool with_roles = false, with_pipeline = false;
};

/// All rules in the order in which `fuse` asks them; the registered ones come last.
std::vector<FuseRule> fuse_rules();
/// The names of all rules, in that order.
std::vector<std::string> fuse_rule_names();

/// Makes a rule known to the whole process, from any thread, before the first graph is compiled.
/// Returns "", or why the rule can't be registered: its name is taken or no word, or it doesn't
/// have exactly one function.
[[nodiscard]] std::string register_fuse_rule(FuseRule rule);

/// Asks one rule, even if `context` leaves it out. Returns false if it has reported an error.
bool fuse_by(std::string_view rule, ir::Graph& graph, PassContext& context);
/// Asks the rules that don't know algorithms, but for those that `context` leaves out.
bool fuse_before_algorithms(ir::Graph& graph, PassContext& context);

// The rules, one file each.
bool fold_attention(ir::Graph& graph, PassContext& context);
void join_elementwise(const Groups& groups, Group& group);
void join_pair(const Groups& groups, Group& group);
void join_product(const Groups& groups, Group& group);
bool fold_norms(ir::Graph& graph, PassContext& context);
bool fold_slices(ir::Graph& graph, PassContext& context);
bool fold_turns(ir::Graph& graph, PassContext& context);
bool fold_appends(ir::Graph& graph, PassContext& context);
bool fold_sends(ir::Graph& graph, PassContext& context);
bool fold_gathers(ir::Graph& graph, PassContext& context);
bool fold_sums(ir::Graph& graph, PassContext& context);

}  // namespace maco::passes
