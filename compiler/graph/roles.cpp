#include "compiler/graph/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "compiler/graph/expressions.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/op.h"
#include "compiler/ops/other_names.h"

namespace maco::graph {

namespace {

ir::Loc loc_of_roles(const ir::Graph& graph) {
  const auto key = graph.key_loc.find("sm_roles");
  return graph.sm_roles.loc.known() || key == graph.key_loc.end() ? graph.sm_roles.loc
                                                                  : key->second;
}

class RolesCheck {
 public:
  RolesCheck(const ir::Graph& graph, bool internal_ops, Report& report)
      : g_(graph), internal_ops_(internal_ops), report_(report) {}

  void run() {
    loc_ = loc_of_roles(g_);
    if (const auto* roles = std::get_if<ir::Roles>(&g_.sm_roles.value)) return check(*roles);
    const auto& variants = std::get<std::vector<ir::RoleVariant>>(g_.sm_roles.value);
    const Variables variables = variables_of(g_);
    const ir::RoleVariant* last_else = nullptr;
    for (const ir::RoleVariant& v : variants) {
      if (last_else && report_.error(v.loc, "a variant after 'else' is never chosen"))
        report_.note(last_else->loc, "'else' is here");
      if (v.condition)
        condition(variables, *v.condition, v.loc);
      else
        last_else = &v;
      check(v.roles);
    }
    if (!last_else)
      report_.error(loc_,
                    "'when' must end in a variant 'else', for launches in which no condition "
                    "holds");
  }

 private:
  void condition(const Variables& variables, const ir::Expr& e, ir::Loc loc) {
    const std::string what = "the condition of a variant";
    for (const std::string& name : e.vars()) {
      const auto found = variables.find(name);
      if (found != variables.end() && allowed(ExprUse::Condition, found->second.kind)) continue;
      report_.error(loc, found == variables.end()
                             ? fmt::format("unknown name '{}' in {}{}", name, what,
                                           near_variable(variables, ExprUse::Condition, name))
                             : why_not(ExprUse::Condition, name, found->second.kind, what));
      return;
    }
    if (const std::string why = why_no_value(variables, e, nullptr); !why.empty())
      report_.error(loc, why);
  }

  void check(const ir::Roles& roles) {
    if (const auto* counts = std::get_if<ir::RoleCounts>(&roles)) {
      count("compute", counts->compute, 1);
      count("comm", counts->comm, 0);
      count("scheduler", counts->scheduler, 1);
      if (counts->scheduler) scheduler(loc_);
    } else if (const auto* ranges = std::get_if<std::vector<ir::RoleRange>>(&roles)) {
      if (ranges->empty())
        report_.error(loc_, "'sm_roles' has no ranges; write 'auto' to leave them to the compiler");
      bool good = true;
      for (const ir::RoleRange& r : *ranges) good = range(r) && good;
      if (!good || ranges->empty()) return;
      check_disjoint(*ranges, report_);
    }
  }
  void count(const char* key, const std::optional<int64_t>& n, int64_t least) {
    if (n && (*n < least || *n > INT32_MAX))
      report_.error(loc_,
                    fmt::format("'{}' must be {} to {}, found {}", key, least, INT32_MAX, *n));
  }
  bool scheduler(ir::Loc loc) {
    const std::string why = why_no_scheduler(g_, "scheduler");
    if (!why.empty()) report_.error(loc, why);
    return why.empty();
  }
  bool range(const ir::RoleRange& r) {
    const ir::Loc loc = r.loc.known() ? r.loc : loc_;
    const auto wrong = [&](const std::string& message) {
      report_.error(loc, message);
      return false;
    };
    if (r.begin < 0 || r.end > INT32_MAX)
      return wrong(fmt::format("the range of SMs [{}, {}) is not within [0, {}]", r.begin, r.end,
                               INT32_MAX));
    if (r.begin >= r.end)
      return wrong(fmt::format("the range of SMs [{}, {}) is empty", r.begin, r.end));
    if (r.role != "compute" && r.role != "comm" && r.role != "scheduler")
      return wrong(fmt::format("'role' must be 'compute', 'comm' or 'scheduler', found '{}'{}",
                               r.role,
                               ops::did_you_mean(r.role, {"compute", "comm", "scheduler"})));
    if (r.role == "scheduler" && !scheduler(loc)) return false;
    for (size_t k = 0; k < r.tasks.size(); ++k) {
      const ops::OpDef* def = ops::find_op(r.tasks[k]);
      if (!def || (def->internal && !internal_ops_))
        return wrong(
            fmt::format("unknown kind of op '{}'{}", r.tasks[k], ops::near_op(r.tasks[k])));
      if (const std::string why = why_not_in(r.role, r.tasks[k]); !why.empty()) return wrong(why);
      const auto begin = r.tasks.begin(), end = begin + static_cast<std::ptrdiff_t>(k);
      if (std::find(begin, end, r.tasks[k]) != end)
        return wrong(fmt::format("'{}' is in 'tasks' twice", r.tasks[k]));
    }
    return true;
  }

  const ir::Graph& g_;
  bool internal_ops_;
  Report& report_;
  ir::Loc loc_;
};

}  // namespace

void check_roles(const ir::Graph& graph, bool internal_ops, Report& report) {
  RolesCheck(graph, internal_ops, report).run();
}

void check_disjoint(const std::vector<ir::RoleRange>& ranges, Report& report) {
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      if (ranges[i].begin >= ranges[k].end || ranges[k].begin >= ranges[i].end) continue;
      if (report.error(ranges[i].loc,
                       fmt::format("SMs [{}, {}) overlap SMs [{}, {})", ranges[i].begin,
                                   ranges[i].end, ranges[k].begin, ranges[k].end)))
        report.note(ranges[k].loc, "which are given here");
      break;
    }
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
    if (def->collective && any_compute && (all || ops::is_pushed(op))) continue;
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
  if (role == "scheduler") return "a range of the role 'scheduler' runs no ops of the graph";
  const bool collective = ops::find_op(kind)->collective;
  if (collective == (role == "comm")) return "";
  return fmt::format("'{}' runs on '{}' SMs, but this range is '{}'", kind,
                     collective ? "comm" : "compute", role);
}

std::string why_no_scheduler(const ir::Graph& graph, const std::string& key) {
  if (graph.schedule == ir::Schedule::Dynamic) return "";
  return fmt::format(
      "'{}' has nothing to do under the schedule 'static'; set 'schedule' to "
      "'dynamic', or leave '{}' out",
      key, key);
}

}  // namespace maco::graph
