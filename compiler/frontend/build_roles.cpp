// build_roles.cpp: `sm_roles` in all its forms.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/frontend/build.h"
#include "compiler/graph/roles.h"
#include "compiler/ops/other_names.h"

namespace maco::frontend {

namespace {

std::optional<ir::RoleCounts> read_counts(BuildContext& c, const Raw& raw) {
  struct Key {
    const char* name;
    const char* other_name;
    std::optional<int64_t> ir::RoleCounts::* count;
    int64_t min;
  };
  constexpr std::array<Key, 3> keys = {
      Key{"compute", "num_workers", &ir::RoleCounts::compute, 1},
      Key{"comm", "num_remote_schedulers", &ir::RoleCounts::comm, 0},
      Key{"scheduler", "num_local_schedulers", &ir::RoleCounts::scheduler, 1}};
  std::vector<std::string> allowed;
  for (const Key& k : keys) allowed.insert(allowed.end(), {k.name, k.other_name});
  allowed.emplace_back("when");
  check_keys(c, raw, "'sm_roles'", allowed);
  ir::RoleCounts counts;
  bool any = false;
  for (const Key& k : keys) {
    const Raw* value = raw.find(k.name);
    const Raw* other = raw.find(k.other_name);
    if (value != nullptr && other != nullptr) {
      if (c.error(other->loc, fmt::format("'{}' is another name for '{}', which is given too",
                                          k.other_name, k.name)))
        c.note(value->loc, fmt::format("'{}' is given here", k.name));
    }
    const std::string key = value != nullptr ? k.name : k.other_name;
    if (value == nullptr) value = other;
    if (value == nullptr) continue;
    any = true;
    if (std::string_view(k.name) == "scheduler" &&
        !graph::check_scheduler(c.check, key, value->loc))
      continue;
    counts.*k.count = read_constant(c, *value, "'" + key + "'", k.min, INT32_MAX);
  }
  if (!any && raw.map.empty())
    c.error(raw.loc, "'sm_roles' gives no counts; write 'auto' to leave them to the compiler");
  return counts;
}

void read_tasks(BuildContext& c, const Raw& raw, ir::RoleRange& range) {
  if (raw.kind == Raw::Kind::List && raw.list.empty())
    c.error(raw.loc, "'tasks' of a range names no kind of op; leave it out if the range runs all");
  for (const auto& [kind, loc] : read_names(c, raw, "'tasks' of a range", true)) {
    const auto hint = [&c, &kind = kind]() -> std::string {
      const auto op = c.op_of.find(kind);
      if (op == c.op_of.end()) return "";
      return fmt::format("; it is the name of an op, but 'tasks' takes kinds: '{}'",
                         c.graph.ops[op->second].kind);
    };
    if (graph::check_task(c.check, range, kind, loc, hint)) range.tasks.push_back(kind);
  }
}

std::optional<ir::RoleRange> read_range(BuildContext& c, const Raw& raw) {
  if (!expect(c, raw, Raw::Kind::Map, "a range of 'sm_roles'", "a map with 'sms' and 'role'"))
    return std::nullopt;
  check_keys(c, raw, "a range of 'sm_roles'", {"sms", "role", "tasks"});
  const Raw* sms = require(c, raw, "a range of 'sm_roles'", "sms");
  const Raw* role = require(c, raw, "a range of 'sm_roles'", "role");
  ir::RoleRange range;
  range.loc = sms != nullptr ? sms->loc : raw.loc;
  bool good = false;
  if (sms != nullptr && (sms->kind != Raw::Kind::List || sms->list.size() != 2)) {
    c.error(sms->loc,
            fmt::format("'sms' must be a list of two integers: the first SM and the one after the "
                        "last, found {}",
                        sms->kind == Raw::Kind::List ? fmt::format("{} entries", sms->list.size())
                                                     : describe(*sms)));
  } else if (sms != nullptr) {
    const auto begin = read_integer(c, sms->list[0], graph::kFirstSm);
    const auto end = read_integer(c, sms->list[1], graph::kEndOfSms);
    range.begin = begin.value_or(0);
    range.end = end.value_or(INT32_MAX);
    good = graph::check_sms(c.check, range, sms->loc, sms->list[0].loc, sms->list[1].loc) &&
           begin && end;
  }
  const auto word =
      role == nullptr ? std::nullopt : read_word(c, *role, "'role'", graph::role_words());
  if (!word) return std::nullopt;
  range.role = *word;
  if (range.role == "scheduler" && !graph::check_scheduler(c.check, range.role, role->loc))
    good = false;
  if (const Raw* tasks = raw.find("tasks")) read_tasks(c, *tasks, range);
  if (!good) return std::nullopt;
  return range;
}

std::optional<ir::Roles> read_roles(BuildContext& c, const Raw& raw) {
  switch (raw.kind) {
    case Raw::Kind::String:
      if (raw.text == "auto") return ir::RoleAuto{};
      break;
    case Raw::Kind::Map: {
      auto counts = read_counts(c, raw);
      if (!counts) return std::nullopt;
      return *counts;
    }
    case Raw::Kind::List: {
      std::vector<ir::RoleRange> ranges;
      const int before = c.report.errors();
      for (const Raw& item : raw.list)
        if (auto range = read_range(c, item)) ranges.push_back(std::move(*range));
      if (raw.list.empty() || !ranges.empty()) graph::check_ranges(c.check, ranges, raw.loc);
      if (c.report.errors() == before) c.ranges.push_back({raw.loc, ranges});
      return ranges;
    }
    default: break;
  }
  c.error(raw.loc, fmt::format("'sm_roles' must be 'auto', a map of counts, a list of ranges or a "
                               "map with 'when', found {}",
                               describe(raw)));
  return std::nullopt;
}

std::vector<ir::RoleVariant> read_variants(BuildContext& c, const Raw& when) {
  std::vector<ir::RoleVariant> variants;
  if (!expect(c, when, Raw::Kind::List, "'when'", "a list of variants")) return variants;
  for (const Raw& raw : when.list) {
    if (!expect(c, raw, Raw::Kind::Map, "a variant of 'when'",
                "a map with 'if' and 'roles', or with 'else'"))
      continue;
    ir::RoleVariant variant;
    variant.loc = raw.loc;
    const Raw* otherwise = raw.find("else");
    const Raw* roles = otherwise;
    if (otherwise != nullptr) {
      check_keys(c, raw, "the variant 'else'", {"else"});
    } else {
      check_keys(c, raw, "a variant of 'when'", {"if", "roles", "else"});
      const Raw* condition = require(c, raw, "a variant of 'when'", "if");
      roles = require(c, raw, "a variant of 'when'", "roles");
      variant.condition = 1;  // not 'else', even if it can't be read
      if (condition != nullptr)
        if (auto e = read_expr(c, *condition, graph::kCondition, ExprUse::Condition))
          variant.condition = std::move(*e);
    }
    if (roles != nullptr && roles->kind == Raw::Kind::Map && roles->find("when") != nullptr)
      c.error(roles->loc, "variants of 'sm_roles' can't be nested");
    else if (auto r = roles == nullptr ? std::nullopt : read_roles(c, *roles))
      variant.roles = std::move(*r);
    variants.push_back(std::move(variant));
  }
  graph::check_variants(c.check, variants, when.loc);
  return variants;
}

}  // namespace

void build_roles(BuildContext& c, const Raw& raw) {
  c.graph.sm_roles.loc = raw.loc;
  if (raw.kind == Raw::Kind::Map && raw.find("when") != nullptr) {
    check_keys(c, raw, "'sm_roles' with 'when'", {"when"});
    c.graph.sm_roles.value = read_variants(c, *raw.find("when"));
  } else if (auto roles = read_roles(c, raw)) {
    c.graph.sm_roles.value = std::move(*roles);
  }
}

}  // namespace maco::frontend
