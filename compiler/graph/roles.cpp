#include "compiler/graph/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "compiler/graph/check_parts.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/op.h"
#include "compiler/ops/other_names.h"

namespace maco::graph {

namespace {

constexpr const char *kRole = "'role'", *kSchedulerRole = "scheduler";

ir::Loc loc_of_roles(const ir::Graph& graph) {
  const auto key = graph.key_loc.find("sm_roles");
  return graph.sm_roles.loc.known() || key == graph.key_loc.end() ? graph.sm_roles.loc
                                                                  : key->second;
}

void check_role_ranges(Check& c, const std::vector<ir::RoleRange>& ranges, ir::Loc otherwise) {
  bool good = true;
  for (const ir::RoleRange& r : ranges) {
    const ir::Loc loc = r.loc.known() ? r.loc : otherwise;
    bool sound = check_sms(c, r, loc, loc, loc) && check_word(c, r.role, role_words(), loc, kRole);
    if (sound && r.role == kSchedulerRole) sound = check_scheduler(c, r.role, loc);
    ir::RoleRange before = r;
    before.tasks.clear();
    for (const std::string& kind : r.tasks) {
      if (!sound) break;
      sound = check_task(c, before, kind, loc);
      before.tasks.push_back(kind);
    }
    good = good && sound;
  }
  if (good) check_ranges(c, ranges, otherwise);
}

void check_counts(Check& c, const ir::RoleCounts& counts, ir::Loc loc) {
  const auto count = [&](const std::string& key, const std::optional<int64_t>& n, int64_t least) {
    if (n) check_within(c, *n, least, INT32_MAX, loc, "'" + key + "'");
  };
  count("compute", counts.compute, 1);
  count("comm", counts.comm, 0);
  count(kSchedulerRole, counts.scheduler, 1);
  if (counts.scheduler) check_scheduler(c, kSchedulerRole, loc);
}

void check_roles(Check& c, const ir::Roles& roles, ir::Loc loc) {
  if (const auto* counts = std::get_if<ir::RoleCounts>(&roles)) check_counts(c, *counts, loc);
  if (const auto* ranges = std::get_if<std::vector<ir::RoleRange>>(&roles))
    check_role_ranges(c, *ranges, loc);
}

}  // namespace

void check_roles(Check& c) {
  const ir::Loc loc = loc_of_roles(c.graph);
  const auto& value = c.graph.sm_roles.value;
  if (const auto* roles = std::get_if<ir::Roles>(&value)) return check_roles(c, *roles, loc);
  const auto& variants = std::get<std::vector<ir::RoleVariant>>(value);
  for (const ir::RoleVariant& v : variants) {
    if (v.condition) check_expr(c, *v.condition, {v.loc, kCondition, ExprUse::Condition});
    check_roles(c, v.roles, loc);
  }
  check_variants(c, variants, loc);
}

const std::vector<std::string>& role_words() {
  static const std::vector<std::string> words = {"compute", "comm", kSchedulerRole};
  return words;
}

bool check_scheduler(Check& c, const std::string& key, ir::Loc loc) {
  if (c.graph.schedule == ir::Schedule::Dynamic) return true;
  c.error(loc, fmt::format("'{}' has nothing to do under the schedule 'static'; set 'schedule' to "
                           "'dynamic', or leave '{}' out",
                           key, key));
  return false;
}

bool check_sms(Check& c, const ir::RoleRange& range, ir::Loc loc, ir::Loc first, ir::Loc end) {
  bool good = check_within(c, range.begin, 0, INT32_MAX, first, kFirstSm);
  good = check_within(c, range.end, 0, INT32_MAX, end, kEndOfSms) && good;
  if (!good || range.begin < range.end) return good;
  c.error(loc, fmt::format("the range of SMs [{}, {}) is empty", range.begin, range.end));
  return false;
}

bool check_task(Check& c, const ir::RoleRange& range, const std::string& kind, ir::Loc loc,
                const Report::Hint& hint) {
  const ops::OpDef* def = ops::find_op(kind);
  if (!def || (def->internal && !c.options.internal_ops)) {
    c.error(loc, fmt::format("unknown kind of op {}", quoted(kind)), [&] {
      std::string text = ops::hint_for_op(kind);
      if (text.empty()) text = suggest(c, kind, ops::op_kinds());
      return text.empty() && hint ? hint() : text;
    });
    return false;
  }
  std::string why = why_not_in(range.role, kind);
  if (why.empty() && std::find(range.tasks.begin(), range.tasks.end(), kind) != range.tasks.end())
    why = fmt::format("'{}' is in 'tasks' twice", kind);
  if (!why.empty()) c.error(loc, why);
  return why.empty();
}

bool check_ranges(Check& c, const std::vector<ir::RoleRange>& ranges, ir::Loc loc) {
  if (ranges.empty())
    c.error(loc, "'sm_roles' has no ranges; write 'auto' to leave them to the compiler");
  bool good = !ranges.empty();
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      if (ranges[i].begin >= ranges[k].end || ranges[k].begin >= ranges[i].end) continue;
      good = false;
      if (c.error(ranges[i].loc, fmt::format("SMs [{}, {}) overlap SMs [{}, {})", ranges[i].begin,
                                             ranges[i].end, ranges[k].begin, ranges[k].end)))
        c.note(ranges[k].loc, "which are given here");
      break;
    }
  return good;
}

bool check_variants(Check& c, const std::vector<ir::RoleVariant>& variants, ir::Loc loc) {
  const ir::RoleVariant* last_else = nullptr;
  bool good = true;
  for (const ir::RoleVariant& v : variants) {
    if (last_else) {
      good = false;
      if (c.error(v.loc, "a variant after 'else' is never chosen"))
        c.note(last_else->loc, "'else' is here");
    }
    if (!v.condition) last_else = &v;
  }
  if (last_else) return good;
  c.error(loc, "'when' must end in a variant 'else', for launches in which no condition holds");
  return false;
}

void check_homes(const ir::Graph& graph, Report& report) {
  const auto check = [&](const ir::Roles& roles) {
    if (const auto* ranges = std::get_if<std::vector<ir::RoleRange>>(&roles))
      check_homes(graph, *ranges, loc_of_roles(graph), true, report);
  };
  if (const auto* roles = std::get_if<ir::Roles>(&graph.sm_roles.value)) return check(*roles);
  for (const ir::RoleVariant& v : std::get<std::vector<ir::RoleVariant>>(graph.sm_roles.value))
    check(v.roles);
}

void check_homes(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges, ir::Loc loc,
                 bool inferred, Report& report) {
  for (const ir::OpId id : homeless(graph, ranges, inferred)) {
    const ir::Op& op = graph[id];
    if (report.error(loc, fmt::format("no range of 'sm_roles' with the role '{}' takes '{}'",
                                      role_of(op.kind), op.kind)))
      report.note(op.loc, fmt::format("'{}' is used here", op.kind));
  }
}

std::vector<ir::OpId> homeless(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges,
                               bool inferred) {
  // SMs that compute may finish what a matmul has pushed, and do all communication beside matmuls
  // that outweigh it.
  const bool all = !inferred || ops::all_compute(graph);
  const bool any_compute = std::any_of(ranges.begin(), ranges.end(), [](const ir::RoleRange& r) {
    return r.role == "compute" && r.tasks.empty();
  });
  std::vector<ir::OpId> found;
  std::set<std::string_view> kinds;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    const ops::OpDef* def = ops::find_op(op.kind);
    if (!def || kinds.count(op.kind) > 0) continue;
    // With one rank there is nothing to communicate.
    if (def->collective && graph.world == 1) continue;
    if (def->collective && any_compute && (all || ops::moves_as_made(op))) continue;
    const std::string role = role_of(op.kind);
    const bool home = std::any_of(ranges.begin(), ranges.end(), [&](const ir::RoleRange& r) {
      return r.role == role && (r.tasks.empty() || std::find(r.tasks.begin(), r.tasks.end(),
                                                             op.kind) != r.tasks.end());
    });
    if (home) continue;
    kinds.insert(op.kind);
    found.push_back(ir::id_of<ir::OpId>(i));
  }
  return found;
}

std::string role_of(const std::string& kind) {
  const ops::OpDef* def = ops::find_op(kind);
  return def && def->collective ? "comm" : "compute";
}

std::string why_not_in(const std::string& role, const std::string& kind) {
  if (role == kSchedulerRole) return "a range of the role 'scheduler' runs no ops of the graph";
  const bool collective = ops::find_op(kind)->collective;
  if (collective == (role == "comm")) return "";
  return fmt::format("'{}' runs on '{}' SMs, but this range is '{}'", kind,
                     collective ? "comm" : "compute", role);
}

}  // namespace maco::graph
