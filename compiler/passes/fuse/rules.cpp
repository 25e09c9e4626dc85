// The table of rules, in the order in which the pass `fuse` asks them.
#include "compiler/passes/fuse/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "compiler/passes/fuse/groups.h"
#include "compiler/passes/graph_edit.h"
#include "ir/check.h"
#include "ir/registry.h"

namespace maco::passes {

namespace {

const std::vector<FuseRule>& built_in() {
  static const std::vector<FuseRule> rules = {
      {.name = "attention",
       .summary = "attention with what appends to its caches and prepares its operands",
       .fold = fold_attention,
       .with_roles = true,
       .with_pipeline = true},
      {.name = "elementwise",
       .summary = "elementwise ops with those that make their operands",
       .join = join_elementwise,
       .with_pipeline = true},
      {.name = "pair",
       .summary = "elementwise ops with the two matmuls of one left operand that they read",
       .join = join_pair,
       .with_pipeline = true},
      {.name = "epilogue",
       .summary = "elementwise ops with the matmul that makes an operand",
       .join = join_product,
       .with_pipeline = true},
      {.name = "norm", .summary = "rmsnorm with the matmuls of few rows", .fold = fold_norms},
      {.name = "slice",
       .summary = "columns of a matrix with the ropes, appends and attention that read them",
       .fold = fold_slices},
      {.name = "turn",
       .summary = "ropes with the matmul of many rows before them",
       .fold = fold_turns},
      {.name = "append",
       .summary = "kv_appends with the matmul of many rows before them",
       .fold = fold_appends},
      {.name = "send",
       .summary = "collectives with the matmul that sends their operand tile by tile",
       .fold = fold_sends,
       .knows_algorithms = true,
       .with_roles = true,
       .with_pipeline = true},
      {.name = "gather",
       .summary = "matmuls that begin with their own rank's rows of what is gathered",
       .fold = fold_gathers,
       .knows_algorithms = true,
       .with_roles = true,
       .with_pipeline = true},
      {.name = "sum",
       .summary = "elementwise ops with the sum of what matmuls send",
       .fold = fold_sums,
       .knows_algorithms = true,
       .with_pipeline = true},
  };
  return rules;
}

ir::Registry<FuseRule>& table() {
  static ir::Registry<FuseRule> rules(&FuseRule::name, built_in());
  return rules;
}

bool allows(const FuseRule& rule, const ir::Graph& graph) {
  return (rule.with_pipeline || !graph.pipeline) && (rule.with_roles || !roles_name_ops(graph));
}

// Asks these rules, in their order. Those that join are asked together, in place of the first.
bool ask(const std::vector<FuseRule>& rules, ir::Graph& graph, PassContext& context) {
  bool joined = false;
  for (const FuseRule& rule : rules) {
    if (rule.fold) {
      if (allows(rule, graph) && !rule.fold(graph, context)) return false;
      continue;
    }
    if (std::exchange(joined, true)) continue;
    std::vector<Groups::Join> joins;
    for (const FuseRule& r : rules)
      if (r.join && allows(r, graph)) joins.push_back(r.join);
    if (!joins.empty()) Groups(graph, context).fuse(joins);
  }
  return true;
}

// The rules that `context` doesn't leave out.
std::vector<FuseRule> asked(const PassContext& context, bool with_algorithms) {
  std::vector<FuseRule> rules = fuse_rules();
  std::erase_if(rules, [&](const FuseRule& rule) {
    return context.left_out.count(rule.name) > 0 || (rule.knows_algorithms && !with_algorithms);
  });
  return rules;
}

}  // namespace

std::vector<FuseRule> fuse_rules() { return table().all(); }

std::vector<std::string> fuse_rule_names() {
  std::vector<std::string> names;
  for (const FuseRule& rule : fuse_rules()) names.push_back(rule.name);
  return names;
}

std::string register_fuse_rule(FuseRule rule) {
  const std::string name = rule.name;
  const auto is_of_words = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  if (name.empty() || name == kAllRules || !std::all_of(name.begin(), name.end(), is_of_words))
    return fmt::format(
        "a rule of 'fuse' needs a name of letters, digits, '_' and '-', which isn't '{}'",
        kAllRules);
  if ((rule.fold != nullptr) == (rule.join != nullptr))
    return fmt::format("rule '{}' of 'fuse' needs either what it folds or what it joins", name);
  if (!table().add(std::move(rule)))
    return fmt::format("rule '{}' of 'fuse' is there already", name);
  return "";
}

bool fuse_by(std::string_view name, ir::Graph& graph, PassContext& context) {
  const FuseRule* rule = table().find(name);
  MACO_CHECK(rule, std::string(name));
  return ask({*rule}, graph, context);
}

bool fuse_before_algorithms(ir::Graph& graph, PassContext& context) {
  return ask(asked(context, false), graph, context);
}

bool fuse(ir::Graph& graph, PassContext& context) {
  return ask(asked(context, true), graph, context);
}

}  // namespace maco::passes
