// build_attrs.cpp: the attributes of an op against its schema.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/build.h"
#include "compiler/ops/attrs.h"

namespace maco::frontend {

using ir::Expr;
using ops::AttrSpec;
using ops::AttrType;

namespace {

const std::vector<std::string>& scaling_keys() {
  static const std::vector<std::string> keys = {"factor", "low_freq_factor", "high_freq_factor",
                                                "original_max_position"};
  return keys;
}

/// An integer or a float, or a string that folds to an integer ("{i}" in a repeat).
std::optional<ir::AttrValue> read_number(BuildContext& c, const Raw& raw, const std::string& what) {
  if (raw.kind == Raw::Kind::Int) return Expr(raw.integer);
  if (raw.kind == Raw::Kind::Float) return raw.number;
  if (raw.kind == Raw::Kind::String) {
    const ir::ParseExprResult parsed = ir::parse_expr(raw.text);
    if (parsed.expr && parsed.expr->is_constant()) {
      if (raw.text.find('/') == std::string::npos) return *parsed.expr;
      c.error(raw.loc, fmt::format("{} must be a number, found '{}', whose '/' would floor to {}; "
                                   "write a number such as 0.5",
                                   what, raw.text, *parsed.expr->constant()));
      return std::nullopt;
    }
  }
  c.error(raw.loc, fmt::format("{} must be a number, found {}", what, describe(raw)));
  return std::nullopt;
}

std::optional<ir::AttrValue> read_list(BuildContext& c, const Raw& raw, const std::string& what,
                                       const Expr* guard) {
  if (!expect(c, raw, Raw::Kind::List, what, "a list of integers")) return std::nullopt;
  std::vector<Expr> list;
  bool good = true;
  for (size_t i = 0; i < raw.list.size(); ++i) {
    auto e = read_expr(c, raw.list[i], fmt::format("entry {} of {}", i, what), ExprUse::Attribute,
                       guard);
    if (e)
      list.push_back(std::move(*e));
    else
      good = false;
  }
  if (!good) return std::nullopt;
  return list;
}

std::optional<ir::AttrValue> read_scaling(BuildContext& c, const Raw& raw,
                                          const std::string& what) {
  if (!expect(c, raw, Raw::Kind::Map, what,
              fmt::format("a map with {}", list_words(scaling_keys(), "and"))))
    return std::nullopt;
  const int before = c.report.errors();
  check_keys(c, raw, what, scaling_keys());
  std::map<std::string, double> values;
  for (const std::string& key : scaling_keys()) {
    const Raw* value = require(c, raw, what, key);
    if (value == nullptr) continue;
    const auto number = read_number(c, *value, fmt::format("'{}' of {}", key, what));
    if (!number) continue;
    const auto* d = std::get_if<double>(&*number);
    values[key] = d != nullptr ? *d : static_cast<double>(*std::get<Expr>(*number).constant());
  }
  if (c.report.errors() > before || values.size() != scaling_keys().size()) return std::nullopt;
  return values;
}

void check_tree_keys(BuildContext& c, const Raw& raw, const std::string& what) {
  if (raw.kind == Raw::Kind::Map) check_duplicate_keys(c, raw, what);
  for (const Raw& item : raw.list) check_tree_keys(c, item, what);
  for (const Raw::Entry& e : raw.map) check_tree_keys(c, e.value, what);
}

ir::AttrTree read_tree(const Raw& raw) {
  ir::AttrTree tree;
  tree.loc = raw.loc;
  switch (raw.kind) {
    case Raw::Kind::Null: tree.value = std::string(); break;
    case Raw::Kind::Bool: tree.value = Expr::var(raw.boolean ? "true" : "false"); break;
    case Raw::Kind::Int: tree.value = Expr(raw.integer); break;
    case Raw::Kind::Float: tree.value = raw.number; break;
    case Raw::Kind::String:
      if (ir::ParseExprResult parsed = ir::parse_expr(raw.text); parsed.expr)
        tree.value = std::move(*parsed.expr);
      else
        tree.value = raw.text;
      break;
    case Raw::Kind::List: {
      ir::AttrTree::List list;
      for (const Raw& item : raw.list) list.push_back(read_tree(item));
      tree.value = std::move(list);
      break;
    }
    case Raw::Kind::Map: {
      ir::AttrTree::Map map;
      for (const Raw::Entry& e : raw.map) map.push_back({e.key, read_tree(e.value), e.key_loc});
      tree.value = std::move(map);
      break;
    }
  }
  return tree;
}

std::optional<ir::AttrValue> read_attr(BuildContext& c, const ops::OpDef& def, const AttrSpec& spec,
                                       const Raw& raw, const std::string& what, const Expr* guard) {
  switch (spec.type) {
    case AttrType::Bool:
      if (!expect(c, raw, Raw::Kind::Bool, what, "true or false")) return std::nullopt;
      return raw.boolean;
    case AttrType::Int:
    case AttrType::RuntimeInt: {
      auto e = read_expr(c, raw, what,
                         spec.type == AttrType::Int ? ExprUse::Attribute : ExprUse::Runtime, guard);
      if (!e) return std::nullopt;
      return *e;
    }
    case AttrType::IntList: return read_list(c, raw, what, guard);
    case AttrType::Number: {
      auto number = read_number(c, raw, what);
      const double* d = number ? std::get_if<double>(&*number) : nullptr;
      if (d == nullptr || ir::fits_f32(*d)) return number;
      c.error(raw.loc, fmt::format("{} is {}, which does not fit in f32", what, *d));
      return std::nullopt;
    }
    case AttrType::Word: {
      if (const auto words = ops::words_of(def, spec, c.graph.algorithms); !words.empty()) {
        auto word = read_word(c, raw, what, words);
        if (!word) return std::nullopt;
        return *word;
      }
      if (!expect(c, raw, Raw::Kind::String, what, "a string")) return std::nullopt;
      return raw.text;
    }
    case AttrType::DType: {
      auto word = read_word(c, raw, what, words_of_dtypes());
      if (!word) return std::nullopt;
      return *word;
    }
    case AttrType::Scaling: return read_scaling(c, raw, what);
    case AttrType::Tree:
      if (raw.kind != Raw::Kind::List && raw.kind != Raw::Kind::Map) {
        c.error(raw.loc, fmt::format("{} must be a list or a map, found {}", what, describe(raw)));
        return std::nullopt;
      }
      check_tree_keys(c, raw, what);
      return read_tree(raw);
  }
  return std::nullopt;
}

void unknown_attr(BuildContext& c, const Raw& op, const std::string& kind, const Raw::Entry& e,
                  const std::vector<std::string>& own) {
  std::vector<std::string> all = own;
  all.insert(all.end(), common_op_keys().begin(), common_op_keys().end());
  std::string hint = suggest_key(c, op, e.key, all);
  if (hint.empty()) {
    std::vector<std::string> other;
    for (const ops::OpDef& def : ops::all_ops())
      if (!def.internal && std::any_of(def.attrs.begin(), def.attrs.end(), [&](const AttrSpec& s) {
            return s.name == e.key && !s.internal;
          }))
        other.push_back(def.kind);
    hint = own.empty() ? fmt::format("; '{}' has no attributes of its own", kind)
                       : fmt::format("; its attributes are {}", list_words(own, "and"));
    if (other.size() == 1) hint += fmt::format("; '{}' is one of '{}'", e.key, other[0]);
  }
  c.error(e.key_loc, fmt::format("'{}' has no attribute {}{}", kind, quoted(e.key), hint));
}

}  // namespace

bool build_attrs(BuildContext& c, const ops::OpDef& def, const Raw& raw, ir::Op& op) {
  const int before = c.report.errors();
  const std::string what = "'" + op.kind + "'";
  std::vector<std::string> own;
  for (const AttrSpec& spec : def.attrs)
    if (!spec.internal || c.options.internal_ops) own.push_back(spec.name);
  const auto spec_of = [&](const std::string& key) -> const AttrSpec* {
    for (const AttrSpec& spec : def.attrs)
      if (spec.name == key && (!spec.internal || c.options.internal_ops)) return &spec;
    return nullptr;
  };
  const auto is_common = [](const std::string& key) {
    return std::find(common_op_keys().begin(), common_op_keys().end(), key) !=
           common_op_keys().end();
  };

  // Ranks that an op's `if` leaves out don't evaluate its other attributes.
  std::optional<Expr> guard;
  if (const Raw* condition = raw.find("if"); condition != nullptr && spec_of("if") != nullptr) {
    guard = read_expr(c, *condition, "'if' of " + what, ExprUse::Attribute);
    if (guard) op.attrs["if"] = {*guard, condition->loc};
  }
  for (const Raw::Entry& e : raw.map) {
    const AttrSpec* spec = spec_of(e.key);
    if (spec == nullptr) {
      if (!is_common(e.key)) unknown_attr(c, raw, op.kind, e, own);
      continue;
    }
    // `dtype` is common to all ops; a second value was reported as a duplicate.
    if (e.key == "if" || e.key == "dtype" || op.attrs.count(e.key) > 0) continue;
    auto value = read_attr(c, def, *spec, e.value, fmt::format("'{}' of {}", e.key, what),
                           guard ? &*guard : nullptr);
    if (value) op.attrs[e.key] = {std::move(*value), e.value.loc};
  }
  for (const AttrSpec& spec : def.attrs)
    if (spec.required) is_missing(c, raw, what, spec.name, op.loc);
  return c.report.errors() == before;
}

}  // namespace maco::frontend
