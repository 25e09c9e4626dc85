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

constexpr const char* kScaling[] = {"factor", "low_freq_factor", "high_freq_factor",
                                    "original_max_position"};

std::string one_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return text;
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
      case AttrType::Bool:
        if (!std::holds_alternative<bool>(v)) must_be("true or false");
        break;
      case AttrType::Int: integer(v, ExprUse::Attribute); break;
      case AttrType::RuntimeInt: integer(v, ExprUse::Runtime); break;
      case AttrType::IntList: list(v); break;
      case AttrType::Number: number(v); break;
      case AttrType::Word: word(v, ops::words_of(def_, spec, c_.graph.algorithms)); break;
      case AttrType::DType: {
        std::vector<std::string> names;
        for (const ir::DType t : ir::kAllDTypes) names.emplace_back(ir::name(t));
        word(v, names);
        break;
      }
      case AttrType::Scaling: scaling(v); break;
      case AttrType::Tree:
        if (!std::holds_alternative<ir::AttrTree>(v)) must_be("a list or a map");
        break;
    }
  }

 private:
  void must_be(const std::string& expected) {
    c_.error(loc_, fmt::format("{} must be {}", what_, expected));
  }
  void integer(const ir::AttrValue& v, ExprUse use) {
    if (const Expr* e = std::get_if<Expr>(&v))
      check_expr(c_, *e, loc_, what_, use, guard_);
    else
      must_be("an integer or an expression");
  }
  void list(const ir::AttrValue& v) {
    const auto* entries = std::get_if<std::vector<Expr>>(&v);
    if (!entries) return must_be("a list of integers");
    for (size_t i = 0; i < entries->size(); ++i)
      check_expr(c_, (*entries)[i], loc_, fmt::format("entry {} of {}", i, what_),
                 ExprUse::Attribute, guard_);
  }
  void number(const ir::AttrValue& v) {
    const double* d = std::get_if<double>(&v);
    const Expr* e = std::get_if<Expr>(&v);
    if (!d && !(e && e->is_constant())) return must_be("a number");
    if (d && !ir::fits_f32(*d))
      c_.error(loc_, fmt::format("{} is {}, which does not fit in f32", what_, *d));
  }
  void word(const ir::AttrValue& v, const std::vector<std::string>& words) {
    const auto* text = std::get_if<std::string>(&v);
    if (!text) return must_be(words.empty() ? "a string" : one_of(words));
    if (!words.empty() && std::find(words.begin(), words.end(), *text) == words.end())
      c_.error(loc_, fmt::format("{} must be {}, found '{}'{}", what_, one_of(words), *text,
                                 ops::did_you_mean(*text, words)));
  }
  void scaling(const ir::AttrValue& v) {
    const auto* map = std::get_if<std::map<std::string, double>>(&v);
    if (!map) return must_be("a map of numbers");
    for (const char* key : kScaling)
      if (map->count(key) == 0) c_.error(loc_, fmt::format("{} has no '{}'", what_, key));
    for (const auto& [key, value] : *map)
      if (!std::isfinite(value))
        c_.error(loc_, fmt::format("'{}' of {} is {}, which is no number", key, what_, value));
      else if (std::find(std::begin(kScaling), std::end(kScaling), key) == std::end(kScaling))
        c_.error(loc_,
                 fmt::format("unknown key '{}' in {}{}", key, what_,
                             ops::did_you_mean(key, {std::begin(kScaling), std::end(kScaling)})));
  }

  Check& c_;
  const ops::OpDef& def_;
  const ir::Op& op_;
  const Expr* guard_;
  std::string what_;
  ir::Loc loc_;
};

}  // namespace

void check_attrs(Check& c, const ir::Op& op) {
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
    else {
      const std::string hint = ops::hint_for_attr(op.kind, name);
      c.error(attr.loc.known() ? attr.loc : op.loc,
              fmt::format("'{}' has no attribute '{}'{}", op.kind, name,
                          hint.empty() ? ops::did_you_mean(name, own) : hint));
    }
  }
  for (const AttrSpec& spec : def.attrs)
    if (spec.required && op.attrs.count(spec.name) == 0 && !(spec.name == "dtype" && op.dtype))
      c.error(op.loc, fmt::format("'{}' has no '{}'", op.kind, spec.name));
}

}  // namespace maco::graph
