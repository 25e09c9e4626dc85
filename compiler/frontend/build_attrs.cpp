// build_attrs.cpp: reads the attributes of an op, and checks them against its schema.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/build.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/other_names.h"

namespace maco::frontend {

using ir::Expr;
using ops::AttrSpec;
using ops::AttrType;

namespace {

using graph::scaling_keys;

/// Reads an integer or a float, or a string that folds to an integer ("{i}" in a repeat).
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
  graph::wrong_type(c.check, raw.loc, what, graph::kNumber, describe(raw));
  return std::nullopt;
}

std::optional<ir::AttrValue> read_list(BuildContext& c, const Raw& raw, const std::string& what,
                                       const Expr* guard) {
  if (!expect(c, raw, Raw::Kind::List, what, graph::kIntegers)) return std::nullopt;
  std::vector<Expr> list;
  bool good = true;
  for (size_t i = 0; i < raw.list.size(); ++i) {
    auto e = read_expr(c, raw.list[i], entry_of(i, what), ExprUse::Attribute, guard);
    if (e)
      list.push_back(std::move(*e));
    else
      good = false;
  }
  if (!good) return std::nullopt;
  return list;
}

/// The way in which frequencies are scaled, by its name in Hugging Face's configs; "" if `map`
/// doesn't say. Some configs say it by their keys alone.
std::string scaling_type(const Raw& map, ir::Loc& loc) {
  for (const char* key : {"rope_type", "type"})
    if (const Raw* type = map.find(key); type != nullptr && type->kind == Raw::Kind::String) {
      loc = type->loc;
      return type->text;
    }
  for (const auto& [key, type] : {std::pair("beta_fast", "yarn"),
                                  {"beta_slow", "yarn"},
                                  {"mscale", "yarn"},
                                  {"mscale_all_dim", "yarn"},
                                  {"attention_factor", "yarn"},
                                  {"short_factor", "longrope"},
                                  {"long_factor", "longrope"},
                                  {"mrope_section", "mrope"}})
    for (const Raw::Entry& e : map.map)
      if (e.key == key) {
        loc = e.key_loc;
        return type;
      }
  return "";
}

/// Reports a kind of scaling that `rope` doesn't have: `scaling` always means that of Llama 3.
bool refuse_scaling(BuildContext& c, const std::string& type, ir::Loc loc,
                    const std::string& what) {
  if (type.empty() || type == "llama3") return false;
  std::string instead =
      fmt::format("{} is that of 'llama3', with {}; {}", what, list_words(scaling_keys(), "and"),
                  type == "mrope" ? "give its cosines and sines as operands"
                                  : "give frequencies that are scaled otherwise as an operand, and "
                                    "their factor of cosines and sines as 'attention_factor'");
  if (type == "default" || type == "none") instead = "leave 'scaling' out";
  // A number of rotations larger than any that occurs: every pair counts as slow.
  if (type == "linear")
    instead =
        "write {factor: ..., low_freq_factor: 1e6, high_freq_factor: 2e6, original_max_position: "
        "1}, which divides all frequencies by 'factor'";
  c.error(loc, fmt::format("'rope' has no scaling {}; {}", quoted(type), instead));
  return true;
}

std::optional<ir::AttrValue> read_scaling(BuildContext& c, const Raw& raw,
                                          const std::string& what) {
  if (raw.kind == Raw::Kind::String && refuse_scaling(c, raw.text, raw.loc, what))
    return std::nullopt;
  if (!expect(c, raw, Raw::Kind::Map, what, graph::scaling_map())) return std::nullopt;
  ir::Loc place;
  if (refuse_scaling(c, scaling_type(raw, place), place, what)) return std::nullopt;
  const int before = c.report.errors();
  std::vector<std::string> known = scaling_keys();
  for (const Raw::Entry& e : raw.map)
    if (e.key == "type" || e.key == "rope_type") {
      c.error(e.key_loc, fmt::format("unknown key '{}' in {}; leave it out: all scaling is that of "
                                     "'llama3'",
                                     e.key, what));
      known.push_back(e.key);
    }
  check_keys(c, raw, what, known);
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

ir::AttrTree tree_of(const Raw& raw) {
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
      for (const Raw& item : raw.list) list.push_back(tree_of(item));
      tree.value = std::move(list);
      break;
    }
    case Raw::Kind::Map: {
      ir::AttrTree::Map map;
      for (const Raw::Entry& e : raw.map) map.push_back({e.key, tree_of(e.value), e.key_loc});
      tree.value = std::move(map);
      break;
    }
  }
  return tree;
}

/// Whether the text is another language's word for "nothing", and no word of the attribute.
bool is_nothing(const Raw& raw, const std::vector<std::string>& words) {
  if (raw.kind == Raw::Kind::Null) return true;
  const bool none = std::find(words.begin(), words.end(), "none") != words.end();
  return raw.kind == Raw::Kind::String && !none &&
         (raw.text == "None" || raw.text == "none" || raw.text == "null" || raw.text == "nullptr");
}

std::optional<ir::AttrValue> read_attr(BuildContext& c, const ops::OpDef& def, const AttrSpec& spec,
                                       const Raw& raw, const std::string& what, const Expr* guard) {
  switch (spec.type) {
    case AttrType::Bool:
      if (!expect(c, raw, Raw::Kind::Bool, what, graph::kTrueOrFalse)) return std::nullopt;
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
      if (d == nullptr || graph::check_number(c.check, *d, raw.loc, what)) return number;
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
        graph::wrong_type(c.check, raw.loc, what, graph::kTree, describe(raw));
        return std::nullopt;
      }
      check_tree_keys(c, raw, what);
      return tree_of(raw);
  }
  return std::nullopt;
}

/// Whether `e`, which is no attribute of the op, is a named operand, as in "matmul(a = x, b = w)".
bool is_operand(const BuildContext& c, const std::string& kind, const Raw::Entry& e) {
  return e.value.kind == Raw::Kind::String && c.tensor_of.count(e.value.text) > 0 &&
         ops::hint_for_attr(kind, e.key).empty();
}

void unknown_attr(BuildContext& c, const Raw& op, const std::string& kind, const Raw::Entry& e,
                  const std::vector<std::string>& own) {
  std::vector<std::string> all = own;
  all.insert(all.end(), common_op_keys().begin(), common_op_keys().end());
  std::string hint = ops::hint_for_attr(kind, e.key);
  mark_meant(c, op, hint);
  if (is_operand(c, kind, e))
    hint = fmt::format("; operands stand first, without names: {}({}, ...)", kind, e.value.text);
  if (hint.empty()) hint = suggest_key(c, op, e.key, all);
  if (hint.empty()) {
    std::vector<std::string> other;
    for (const ops::OpDef& def : ops::all_ops())
      if (!def.internal && std::any_of(def.attrs.begin(), def.attrs.end(), [&](const AttrSpec& s) {
            return s.name == e.key && !s.internal;
          }))
        other.push_back(def.kind);
    hint = own.empty() ? fmt::format("; '{}' has no attributes of its own", kind)
                       : fmt::format("; its attributes are {}", list_words(own, "and"));
    if (!other.empty() && other.size() <= 2)
      hint += fmt::format("; '{}' is one of {}", e.key, list_words(other, "and"));
  }
  graph::unknown_attr(c.check, kind, e.key, e.key_loc, [&] { return hint; });
}

}  // namespace

std::optional<ir::AttrTree> read_tree(const Raw& raw, const std::string& what,
                                      ir::Diagnostics& diagnostics) {
  const BuildOptions options;
  BuildContext c(options, diagnostics);
  check_tree_keys(c, raw, what);
  const bool good = c.report.errors() == 0;
  c.report.flush(diagnostics);
  if (!good) return std::nullopt;
  return tree_of(raw);
}

bool names_operands(const BuildContext& c, const ops::OpDef& def, const Raw& raw) {
  return std::any_of(raw.map.begin(), raw.map.end(), [&](const Raw::Entry& e) {
    const bool attr = std::any_of(def.attrs.begin(), def.attrs.end(),
                                  [&](const AttrSpec& s) { return s.name == e.key; });
    const auto& common = common_op_keys();
    return !attr && std::find(common.begin(), common.end(), e.key) == common.end() &&
           is_operand(c, def.kind, e);
  });
}

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
  bool operands = false;
  for (const Raw::Entry& e : raw.map) {
    const AttrSpec* spec = spec_of(e.key);
    if (spec == nullptr) {
      if (is_common(e.key) || (operands && is_operand(c, op.kind, e))) continue;
      unknown_attr(c, raw, op.kind, e, own);
      operands = operands || is_operand(c, op.kind, e);
      continue;
    }
    // `dtype` is common to all ops; a second value was reported as a duplicate.
    if (e.key == "if" || e.key == "dtype" || op.attrs.count(e.key) > 0) continue;
    if (!spec->required && is_nothing(e.value, ops::words_of(def, *spec, c.graph.algorithms))) {
      c.error(e.value.loc, fmt::format("'{}' of {} is {}; leave it out for its default", e.key,
                                       what, describe(e.value)));
      continue;
    }
    auto value = read_attr(c, def, *spec, e.value, fmt::format("'{}' of {}", e.key, what),
                           guard ? &*guard : nullptr);
    if (value) op.attrs[e.key] = {std::move(*value), e.value.loc};
  }
  for (const AttrSpec& spec : def.attrs)
    if (spec.required) is_missing(c, raw, what, spec.name, op.loc);
  return c.report.errors() == before;
}

}  // namespace maco::frontend
