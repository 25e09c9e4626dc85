// check_attrs.cpp: checks the attributes of an op against its schema.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/check_parts.h"
#include "compiler/ops/op.h"
#include "compiler/ops/other_names.h"

namespace maco::graph {

using ir::Expr;
using ops::AttrSpec;
using ops::AttrType;

namespace {

/// An attribute's value for a message.
std::string describe(const ir::AttrValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* e = std::get_if<Expr>(&value)) {
    const auto n = e->constant();
    return n ? fmt::format("the integer {}", *n) : quoted(e->str());
  }
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("the number {}", *d);
  if (const auto* text = std::get_if<std::string>(&value)) return quoted(*text);
  if (std::holds_alternative<std::vector<Expr>>(value)) return "a list of integers";
  return std::holds_alternative<ir::AttrTree>(value) ? "a list or a map" : "a map of numbers";
}

class AttrCheck {
 public:
  AttrCheck(Check& c, const ops::OpDef& def, const ir::Op& op, const Expr* guard)
      : c_(c), def_(def), op_(op), guard_(guard) {}

  void check(const AttrSpec& spec, const ir::Attr& attr) {
    what_ = fmt::format("'{}' of '{}'", spec.name, op_.kind);
    loc_ = attr.loc.known() ? attr.loc : op_.loc;
    const ir::AttrValue& v = attr.value;
    switch (spec.type) {
      case AttrType::Bool: is<bool>(v, kTrueOrFalse); break;
      case AttrType::Int: integer(v, ExprUse::Attribute); break;
      case AttrType::RuntimeInt: integer(v, ExprUse::Runtime); break;
      case AttrType::IntList: list(v); break;
      case AttrType::Number: number(v); break;
      case AttrType::Word: word(v, ops::words_of(def_, spec, c_.graph.algorithms)); break;
      case AttrType::DType: word(v, words_of_dtypes()); break;
      case AttrType::Scaling: scaling(v); break;
      case AttrType::Tree: is<ir::AttrTree>(v, kTree); break;
    }
  }

 private:
  template <class T>
  const T* is(const ir::AttrValue& v, const std::string& expected) {
    const T* value = std::get_if<T>(&v);
    if (!value) wrong_type(c_, loc_, what_, expected, describe(v));
    return value;
  }
  void integer(const ir::AttrValue& v, ExprUse use) {
    if (const Expr* e = is<Expr>(v, kInteger)) check_expr(c_, *e, {loc_, what_, use, guard_});
  }
  void list(const ir::AttrValue& v) {
    const auto* entries = is<std::vector<Expr>>(v, kIntegers);
    for (size_t i = 0; entries && i < entries->size(); ++i)
      check_expr(c_, (*entries)[i], {loc_, entry_of(i, what_), ExprUse::Attribute, guard_});
  }
  void number(const ir::AttrValue& v) {
    const Expr* e = std::get_if<Expr>(&v);
    if (e && e->is_constant()) return;
    if (const double* d = is<double>(v, kNumber)) check_number(c_, *d, loc_, what_);
  }
  void word(const ir::AttrValue& v, const std::vector<std::string>& words) {
    const auto* text = is<std::string>(v, words.empty() ? "a string" : list_words(words));
    if (text && !words.empty()) check_word(c_, *text, words, loc_, what_);
  }
  void scaling(const ir::AttrValue& v) {
    const auto* map = is<std::map<std::string, double>>(v, scaling_map());
    if (!map) return;
    for (const std::string& key : scaling_keys())
      if (map->count(key) == 0) missing_key(c_, loc_, what_, key);
    for (const auto& [key, value] : *map)
      if (std::find(scaling_keys().begin(), scaling_keys().end(), key) == scaling_keys().end())
        unknown_key(c_, loc_, what_, key, [&] { return suggest(c_, key, scaling_keys()); });
      else if (!std::isfinite(value))
        c_.error(loc_, fmt::format("'{}' of {} is {}, which is no number", key, what_, value));
  }

  Check& c_;
  const ops::OpDef& def_;
  const ir::Op& op_;
  const Expr* guard_;
  std::string what_;
  ir::Loc loc_;
};

}  // namespace

std::string scaling_map() { return "a map with " + list_words(scaling_keys(), "and"); }

const std::vector<std::string>& scaling_keys() {
  static const std::vector<std::string> keys = {"factor", "low_freq_factor", "high_freq_factor",
                                                "original_max_position"};
  return keys;
}

bool check_number(Check& c, double number, ir::Loc loc, const std::string& what) {
  if (ir::fits_f32(number)) return true;
  c.error(loc, fmt::format("{} is {}, which does not fit in f32", what, number));
  return false;
}

void unknown_attr(Check& c, const std::string& kind, const std::string& name, ir::Loc loc,
                  const Report::Hint& hint) {
  c.error(loc, fmt::format("'{}' has no attribute {}", kind, quoted(name)), hint);
}

bool check_attrs(Check& c, const ir::Op& op) {
  const size_t before = c.errors;
  const ops::OpDef& def = *ops::find_op(op.kind);
  // Ranks that an op's `if` leaves out don't evaluate its other attributes.
  const auto condition = op.attrs.find("if");
  const Expr* guard =
      condition == op.attrs.end() ? nullptr : std::get_if<Expr>(&condition->second.value);
  std::vector<std::string> own;
  for (const AttrSpec& spec : def.attrs)
    if (!spec.internal || c.options.internal_ops) own.push_back(spec.name);
  for (const auto& [name, attr] : op.attrs) {
    const auto spec = std::find_if(def.attrs.begin(), def.attrs.end(), [&](const AttrSpec& s) {
      return s.name == name && (!s.internal || c.options.internal_ops);
    });
    if (spec != def.attrs.end())
      AttrCheck(c, def, op, name == "if" ? nullptr : guard).check(*spec, attr);
    else
      unknown_attr(c, op.kind, name, attr.loc.known() ? attr.loc : op.loc, [&] {
        const std::string hint = ops::hint_for_attr(op.kind, name);
        return hint.empty() ? suggest(c, name, own) : hint;
      });
  }
  for (const AttrSpec& spec : def.attrs)
    if (spec.required && op.attrs.count(spec.name) == 0 && !(spec.name == "dtype" && op.dtype))
      missing_key(c, op.loc, fmt::format("'{}'", op.kind), spec.name);
  return c.errors == before;
}

}  // namespace maco::graph
