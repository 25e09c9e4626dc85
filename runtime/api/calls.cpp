#include "runtime/api/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "compiler/frontend/frontend.h"
#include "compiler/graph/check.h"
#include "compiler/graph/check_parts.h"
#include "compiler/graph/complete.h"
#include "compiler/ops/op.h"
#include "ir/dtype.h"
#include "runtime/api/convert.h"

namespace maco {

namespace {

using frontend::Raw;
using Call = Calls::Call;
using Setting = Calls::Setting;
using Value = Calls::Value;
using Variable = Calls::Variable;

// The graph of a builder's calls.
class Making {
 public:
  Making(const Calls& calls, ir::Diagnostics& diagnostics)
      : diagnostics_(diagnostics), report_(diagnostics), builder_(calls.id) {
    g_.name = calls.name;
    g_.world = calls.world;
    g_.loc = at(calls.where);
  }

  void declare(const Variable& v) {
    if (!v.scalar) {
      g_.dims.push_back({.name = v.name,
                         .min = v.lowest,
                         .max = v.most,
                         .loc = at(v.where),
                         .typical = v.typical});
      return;
    }
    ir::Tensor t;
    t.name = v.name;
    t.kind = ir::TensorKind::Scalar;
    t.dtype = ir::DType::I32;
    t.range_lo = v.lowest;
    t.range_hi = v.most;
    t.typical = v.typical;
    t.loc = at(v.where);
    g_.tensors.push_back(std::move(t));
  }

  // Values in the builder's order.
  void declare(const std::vector<Value>& values, const std::vector<std::string>& names) {
    for (size_t i = 0; i < values.size(); ++i) {
      const Value& v = values[i];
      ir::Tensor t;
      t.name = names[i];
      t.kind = v.kind;
      t.dtype = ir_type(v.dtype);
      t.loc = at(v.where);
      for (size_t axis = 0; axis < v.shape.size(); ++axis)
        if (auto e = expression(v.shape[axis].text(),
                                graph::axis_of(axis, "tensor '" + names[i] + "'"), t.loc))
          t.shape.push_back(std::move(*e));
      tensors_.push_back(ir::id_of<ir::TensorId>(g_.tensors.size()));
      g_.tensors.push_back(std::move(t));
    }
  }

  void add(const Call& call) {
    ir::Op op;
    op.kind = call.kind;
    op.loc = op.out_loc = at(call.where);
    for (size_t i = 0; i < call.operands.size(); ++i) {
      if (const auto id = tensor(call.operands[i], op, fmt::format("operand {}", i)))
        op.in.push_back(*id);
      op.in_loc.push_back(op.loc);
    }
    if (call.common.into) tensor(*call.common.into, op, "'into'");
    for (const size_t result : call.results) op.out.push_back(tensors_[result]);
    for (const auto& [key, value] : call.attrs) attribute(op, key, value);
    const Common& c = call.common;
    // An op that gives a state has a name of its own.
    if (call.results.empty() || c.into) common(op, "name", c.name);
    if (c.dtype) op.dtype = ir_type(*c.dtype);
    for (const std::string& name : c.after) common(op, "after", name);
    common(op, "phase", c.phase);
    common(op, "overlap", c.overlap);
    common(op, "overlap_group", c.overlap_group);
    common(op, "priority", c.priority);
    g_.ops.push_back(std::move(op));
  }

  // The key of a setting, for frontend::read_keys.
  void add(const Setting& setting) {
    Raw value = raw(setting.value, at(setting.where));
    keys_.map.push_back({setting.key, value.loc, std::move(value)});
  }

  // Reads settings and collectives, checks the graph and infers its shapes. Nothing after an error.
  std::optional<ir::Graph> finish(const std::vector<std::string>& collectives) {
    std::vector<Raw> files;
    for (const std::string& text : collectives)
      if (auto file = frontend::parse_collectives(diagnostics_.add_file("<collectives>", text),
                                                  diagnostics_))
        files.push_back(std::move(*file));
    if (!complete_ || files.size() < collectives.size()) return std::nullopt;
    graph::name_ops(g_);
    keys_.kind = Raw::Kind::Map;
    keys_.loc = g_.loc;
    const bool read = frontend::add_collectives(files, g_, diagnostics_) &&
                      frontend::read_keys(keys_, g_, diagnostics_);
    if (!graph::check_and_infer(g_, {}, diagnostics_) || !read) return std::nullopt;
    return std::move(g_);
  }

 private:
  // The place of a call; the text of that file isn't known.
  ir::Loc at(const Where& where) {
    const std::string file = where.file_name();
    const auto known = std::find(files_.begin(), files_.end(), file);
    const auto index = static_cast<size_t>(known - files_.begin());
    if (known == files_.end()) {
      files_.push_back(file);
      ids_.push_back(diagnostics_.add_file(file, ""));
    }
    return {ids_[index], static_cast<int32_t>(where.line()), static_cast<int32_t>(where.column())};
  }
  // Reports what can't be in a graph, and so is left out.
  void error(ir::Loc loc, std::string message) {
    diagnostics_.error(loc, std::move(message));
    complete_ = false;
  }

  std::optional<ir::TensorId> tensor(const Tensor& t, const ir::Op& op, const std::string& what) {
    if (t.builder == builder_ && t.index < tensors_.size()) return tensors_[t.index];
    error(op.loc, fmt::format("{} of '{}' is no tensor of this builder", what, op.kind));
    return std::nullopt;
  }

  std::optional<ir::Expr> expression(const std::string& text, const std::string& what,
                                     ir::Loc loc) {
    ir::ParseExprResult parsed = ir::parse_expr(text);
    if (!parsed.expr) error(loc, fmt::format("in {}: {}", what, parsed.error));
    return std::move(parsed.expr);
  }

  // What any op may have. An empty text stands for none.
  void common(ir::Op& op, const std::string& key, const std::string& text) {
    if (text.empty()) return;
    const std::string what = fmt::format("'{}' of '{}'", key, op.kind);
    const auto index = [&](const std::vector<std::string>& words) -> std::optional<size_t> {
      graph::Check check{g_, {}, report_};
      if (!graph::check_word(check, text, words, op.loc, what)) return std::nullopt;
      return static_cast<size_t>(std::find(words.begin(), words.end(), text) - words.begin());
    };
    if (key == "name") {
      op.name = text;
      op.named = true;
    } else if (key == "after") {
      op.after.push_back(text);
      op.after_loc.push_back(op.loc);
    } else if (key == "phase") {
      op.phase = text;
      op.phase_loc = op.loc;
    } else if (key == "overlap_group") {
      op.overlap_group = text;
    } else if (key == "overlap") {
      if (const auto i = index({"none", "conservative", "aggressive"}))
        op.overlap = static_cast<ir::Overlap>(*i);
    } else if (key == "priority") {
      if (const auto i = index({"low", "normal", "high"}))
        op.priority = static_cast<ir::Priority>(*i);
    } else if (index(graph::words_of_dtypes())) {
      op.dtype = ir::dtype_from_name(text);
    }
  }

  void attribute(ir::Op& op, const std::string& key, const Attr& attr) {
    static const std::set<std::string> shared = {"name",          "after",    "phase", "overlap",
                                                 "overlap_group", "priority", "dtype"};
    const auto* text = std::get_if<std::string>(&attr.value());
    if (text != nullptr && shared.count(key) > 0) return common(op, key, *text);
    const std::string what = fmt::format("'{}' of '{}'", key, op.kind);
    if (op.attrs.count(key) > 0) return error(op.loc, what + " is given twice");
    if (auto value = read(op, key, attr, what)) op.attrs[key] = {std::move(*value), op.loc};
  }

  // The value as it is written. compiler/graph checks whether it fits the attribute.
  std::optional<ir::AttrValue> read(const ir::Op& op, const std::string& key, const Attr& attr,
                                    const std::string& what) {
    const ops::OpDef* def = ops::find_op(op.kind);
    std::optional<ops::AttrType> type;
    if (def != nullptr)
      for (const ops::AttrSpec& spec : def->attrs)
        if (spec.name == key) type = spec.type;
    if (const auto* b = std::get_if<bool>(&attr.value())) return *b;
    if (const auto* n = std::get_if<int64_t>(&attr.value())) return ir::Expr(*n);
    if (const auto* d = std::get_if<double>(&attr.value())) return *d;
    if (const auto* text = std::get_if<std::string>(&attr.value());
        text != nullptr && (text->empty() || ((*text)[0] != '[' && (*text)[0] != '{')))
      return of_text(*text, type, what, op.loc);
    return of_raw(raw(attr, op.loc), type, what, op.loc);
  }

  std::optional<ir::AttrValue> of_text(const std::string& text, std::optional<ops::AttrType> type,
                                       const std::string& what, ir::Loc loc) {
    using Type = ops::AttrType;
    if (type == Type::Int || type == Type::RuntimeInt) {
      auto e = expression(text, what, loc);
      if (!e) return std::nullopt;
      return std::move(*e);
    }
    // A quotient would be rounded down.
    if (type == Type::Number && text.find('/') == std::string::npos)
      if (const ir::ParseExprResult parsed = ir::parse_expr(text);
          parsed.expr && parsed.expr->is_constant())
        return *parsed.expr;
    return text;
  }

  // A list or a map.
  std::optional<ir::AttrValue> of_raw(const Raw& raw, std::optional<ops::AttrType> type,
                                      const std::string& what, ir::Loc loc) {
    const auto all = [](const auto& items, auto is) {
      return std::all_of(items.begin(), items.end(), is);
    };
    if (type == ops::AttrType::IntList && all(raw.list, [](const Raw& item) {
          return item.kind == Raw::Kind::Int || item.kind == Raw::Kind::String;
        })) {
      std::vector<ir::Expr> list;
      for (size_t i = 0; i < raw.list.size(); ++i) {
        const Raw& item = raw.list[i];
        auto e = item.kind == Raw::Kind::Int ? std::optional(ir::Expr(item.integer))
                                             : expression(item.text, graph::entry_of(i, what), loc);
        if (!e) return std::nullopt;
        list.push_back(std::move(*e));
      }
      return list;
    }
    if (type == ops::AttrType::Scaling && all(raw.map, [](const Raw::Entry& e) {
          return e.value.kind == Raw::Kind::Int || e.value.kind == Raw::Kind::Float;
        })) {
      std::map<std::string, double> map;
      for (const Raw::Entry& e : raw.map)
        map[e.key] =
            e.value.kind == Raw::Kind::Int ? static_cast<double>(e.value.integer) : e.value.number;
      return map;
    }
    auto tree = frontend::read_tree(raw, what, diagnostics_);
    complete_ = complete_ && tree;
    if (!tree) return std::nullopt;
    return std::move(*tree);
  }

  // A value of the language, with the call's place throughout.
  Raw raw(const Attr& attr, ir::Loc loc) {
    Raw made;
    made.loc = loc;
    if (const auto* b = std::get_if<bool>(&attr.value())) {
      made.kind = Raw::Kind::Bool;
      made.boolean = *b;
    } else if (const auto* n = std::get_if<int64_t>(&attr.value())) {
      made.kind = Raw::Kind::Int;
      made.integer = *n;
    } else if (const auto* d = std::get_if<double>(&attr.value())) {
      made.kind = Raw::Kind::Float;
      made.number = *d;
    } else if (const auto* text = std::get_if<std::string>(&attr.value())) {
      return raw(*text, loc);
    } else if (const auto* shape = std::get_if<Shape>(&attr.value())) {
      made.kind = Raw::Kind::List;
      for (const Expr& e : *shape) made.list.push_back(raw(e.text(), loc));
    } else {
      made.kind = Raw::Kind::Map;
      for (const auto& [key, value] : std::get<std::map<std::string, double>>(attr.value()))
        made.map.push_back({key, loc, raw(Attr(value), loc)});
    }
    return made;
  }
  // A word or an expression (a lone integer is one), a list or a map.
  Raw raw(const std::string& text, ir::Loc loc) {
    Raw made;
    made.kind = Raw::Kind::String;
    made.text = text;
    if (!text.empty() && (text[0] == '[' || text[0] == '{')) {
      ir::Diagnostics wrong;
      auto value =
          frontend::parse_dsl_value(wrong.add_file("the text of an attribute", text), wrong);
      if (value)
        made = std::move(*value);
      else
        error(loc, fmt::format("in '{}': {}", text, wrong.all().front().message));
    } else if (const char* end = text.data() + text.size(); !text.empty()) {
      const auto parsed = std::from_chars(text.data(), end, made.integer);
      if (parsed.ec == std::errc() && parsed.ptr == end) made.kind = Raw::Kind::Int;
    }
    place(made, loc);
    return made;
  }
  static void place(Raw& raw, const ir::Loc& loc) {
    raw.loc = loc;
    for (Raw& item : raw.list) place(item, loc);
    for (Raw::Entry& e : raw.map) {
      e.key_loc = loc;
      place(e.value, loc);
    }
  }

  ir::Diagnostics& diagnostics_;
  graph::DirectReport report_;
  const uint64_t builder_;
  bool complete_ = true;
  std::vector<std::string> files_;
  std::vector<int32_t> ids_;
  ir::Graph g_;
  std::vector<ir::TensorId> tensors_;  // of the builder's values
  Raw keys_;
};

}  // namespace

std::optional<ir::Graph> graph_of(const Calls& calls, const std::vector<std::string>& names,
                                  ir::Diagnostics& diagnostics) {
  Making making(calls, diagnostics);
  for (const Variable& v : calls.variables) making.declare(v);
  making.declare(calls.values, names);
  for (const Call& call : calls.calls) making.add(call);
  for (const Setting& setting : calls.settings) making.add(setting);
  return making.finish(calls.collectives);
}

}  // namespace maco
