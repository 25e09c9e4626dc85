// A GraphBuilder records the calls. build() makes the tree that a text would give
// (compiler/frontend/raw.h), so that the same code checks graphs from C++ and from files. Errors
// are reported at the place of the call.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <memory>
#include <set>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/raw.h"
#include "ir/dtype.h"
#include "maco/graph.h"
#include "runtime/api/convert.h"

namespace maco {

using frontend::Raw;

namespace {

// A tensor or the result of an op.
struct Value {
  std::string name;  // empty: it has none yet
  std::string kind;  // "input", ..., "output"; empty: a temporary
  DType dtype = DType::F32;
  Shape shape;
  Where where;
};

struct Call {
  std::string kind;
  std::vector<Tensor> operands;
  std::vector<size_t> results;
  Attrs attrs;
  Common common;
  Where where;
};

struct Variable {
  std::string name;
  bool scalar = false;
  int64_t lowest = 0, most = 0;  // for a scalar: the end of its range
  std::optional<int64_t> typical;
  Where where;
};

struct Setting {
  std::string key;
  Attr value;
  Where where;
};

// A builder's id, unique in the process.
uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

struct GraphBuilder::State {
  const uint64_t id = next_id();  // tensors carry it
  std::string name;
  int world = 1;
  Where where;
  std::vector<Value> values;
  std::vector<Call> calls;
  std::vector<Variable> variables;
  std::vector<Setting> settings;
  std::vector<std::string> collectives;  // texts
};

namespace {

// The tree of a builder's calls.
class Tree {
 public:
  explicit Tree(ir::Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

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
  Raw made(Raw::Kind kind, const Where& where) {
    Raw raw;
    raw.kind = kind;
    raw.loc = at(where);
    return raw;
  }
  Raw word(const std::string& text, const Where& where) {
    Raw raw = made(Raw::Kind::String, where);
    raw.text = text;
    return raw;
  }
  Raw integer(int64_t value, const Where& where) {
    Raw raw = made(Raw::Kind::Int, where);
    raw.integer = value;
    return raw;
  }
  Raw number(double value, const Where& where) {
    Raw raw = made(Raw::Kind::Float, where);
    raw.number = value;
    return raw;
  }
  // A list or map of the language, with the call's place throughout.
  Raw nested(const std::string& text, const Where& where) {
    ir::Diagnostics wrong;
    auto raw = frontend::parse_dsl_value(wrong.add_file("the text of an attribute", text), wrong);
    if (!raw) {
      diagnostics_.error(at(where), fmt::format("in '{}': {}", text, wrong.all().front().message));
      return made(Raw::Kind::List, where);
    }
    place(*raw, at(where));
    return std::move(*raw);
  }
  static void place(Raw& raw, const ir::Loc& loc) {
    raw.loc = loc;
    for (Raw& item : raw.list) place(item, loc);
    for (Raw::Entry& e : raw.map) {
      e.key_loc = loc;
      place(e.value, loc);
    }
  }
  // A word or an expression (a lone integer is one), a list or a map.
  Raw text(const std::string& text, const Where& where) {
    if (!text.empty() && (text[0] == '[' || text[0] == '{')) return nested(text, where);
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end) return integer(value, where);
    return word(text, where);
  }
  template <class Items, class F>
  Raw list(const Items& items, const Where& where, F one) {
    Raw raw = made(Raw::Kind::List, where);
    for (const auto& item : items) raw.list.push_back(one(item));
    return raw;
  }
  Raw shape(const Shape& shape, const Where& where) {
    return list(shape, where, [&](const Expr& e) { return text(e.text(), where); });
  }
  Raw attr(const Attr& attr, const Where& where) {
    struct Visitor {
      Tree& tree;
      const Where& where;
      Raw operator()(bool v) const {
        Raw raw = tree.made(Raw::Kind::Bool, where);
        raw.boolean = v;
        return raw;
      }
      Raw operator()(int64_t v) const { return tree.integer(v, where); }
      Raw operator()(double v) const { return tree.number(v, where); }
      Raw operator()(const std::string& v) const { return tree.text(v, where); }
      Raw operator()(const Shape& v) const { return tree.shape(v, where); }
      Raw operator()(const std::map<std::string, double>& v) const {
        Raw raw = tree.made(Raw::Kind::Map, where);
        for (const auto& [key, value] : v) tree.add(raw, key, tree.number(value, where));
        return raw;
      }
    };
    return std::visit(Visitor{*this, where}, attr.value());
  }
  void add(Raw& map, std::string key, Raw value) {
    const ir::Loc loc = value.loc;
    map.map.push_back({std::move(key), loc, std::move(value)});
  }

 private:
  ir::Diagnostics& diagnostics_;
  std::vector<std::string> files_;
  std::vector<int32_t> ids_;
};

// Names of the values; a value without one gets its op's kind and a number.
std::vector<std::string> names_of(const std::vector<Value>& values,
                                  const std::vector<Call>& calls) {
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (const Value& v : values) {
    names.push_back(v.name);
    taken.insert(v.name);
  }
  for (const Call& call : calls) taken.insert(call.common.name);
  std::map<std::string, int64_t> numbers;  // by kind: the next number to try
  for (const Call& call : calls) {
    int64_t& number = numbers[call.kind];
    for (size_t result : call.results) {
      while (names[result].empty()) {
        std::string name = fmt::format("{}.{}", call.kind, number++);
        if (taken.insert(name).second) names[result] = std::move(name);
      }
    }
  }
  return names;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, int world, Where where)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->world = world;
  state_->where = where;
}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

Expr GraphBuilder::dim(std::string name, int64_t most, DimRange range, Where where) {
  state_->variables.push_back({name, false, range.lowest, most, range.typical, where});
  return Expr(std::move(name));
}

Expr GraphBuilder::scalar(std::string name, int64_t lowest, int64_t end,
                          std::optional<int64_t> typical, Where where) {
  state_->variables.push_back({name, true, lowest, end, typical, where});
  return Expr(std::move(name));
}

Tensor GraphBuilder::declare(const char* kind, std::string name, DType type, Shape shape,
                             Where where) {
  state_->values.push_back({std::move(name), kind, type, std::move(shape), where});
  return {state_->id, state_->values.size() - 1};
}
Tensor GraphBuilder::input(std::string name, DType type, Shape shape, Where where) {
  return declare("input", std::move(name), type, std::move(shape), where);
}
Tensor GraphBuilder::param(std::string name, DType type, Shape shape, Where where) {
  return declare("param", std::move(name), type, std::move(shape), where);
}
Tensor GraphBuilder::state(std::string name, DType type, Shape shape, Where where) {
  return declare("state", std::move(name), type, std::move(shape), where);
}

Tensor GraphBuilder::output(std::string name, Tensor tensor, Where where) {
  if (tensor.builder == state_->id && tensor.index < state_->values.size()) {
    Value& value = state_->values[tensor.index];
    if (value.kind.empty() && (value.name.empty() || value.name == name)) {
      value.name = std::move(name);
      value.kind = "output";
      return tensor;
    }
  }
  Common common;
  common.name = name;
  const Tensor copied = copy(tensor, common, where);
  state_->values[copied.index].kind = "output";
  return copied;
}

std::vector<Tensor> GraphBuilder::ops(std::string kind, std::vector<Tensor> operands,
                                      size_t results, Attrs attrs, const Common& common,
                                      Where where) {
  Call call{std::move(kind), std::move(operands), {}, std::move(attrs), common, where};
  std::vector<Tensor> made;
  for (size_t i = 0; i < results; ++i) {
    const bool into = i == 0 && common.into && common.into->builder == state_->id &&
                      common.into->index < state_->values.size();
    if (!into) {
      std::string name =
          i == 0 || common.name.empty() ? common.name : fmt::format("{}.{}", common.name, i);
      state_->values.push_back({std::move(name), "", DType::F32, {}, where});
    }
    made.push_back(into ? *common.into : Tensor{state_->id, state_->values.size() - 1});
    call.results.push_back(made.back().index);
  }
  state_->calls.push_back(std::move(call));
  return made;
}

void GraphBuilder::set(std::string key, Attr value, Where where) {
  state_->settings.push_back({std::move(key), std::move(value), where});
}

void GraphBuilder::collectives(std::string text) { state_->collectives.push_back(std::move(text)); }

Result<Graph> GraphBuilder::build() const {
  return guarded([&] { return built(*state_); });
}

Result<Graph> GraphBuilder::built(const State& s) {
  ir::Diagnostics diagnostics;
  Tree tree(diagnostics);
  const std::vector<std::string> names = names_of(s.values, s.calls);

  Raw root = tree.made(Raw::Kind::Map, s.where);
  tree.add(root, "maco", tree.integer(1, s.where));
  tree.add(root, "name", tree.word(s.name, s.where));
  tree.add(root, "world", tree.integer(s.world, s.where));

  Raw dims = tree.made(Raw::Kind::Map, s.where), tensors = tree.made(Raw::Kind::Map, s.where);
  for (const Variable& v : s.variables) {
    Raw one = tree.made(Raw::Kind::Map, v.where);
    if (v.scalar) {
      tree.add(one, "kind", tree.word("scalar", v.where));
      tree.add(one, "range", tree.list(std::vector{v.lowest, v.most}, v.where, [&](int64_t n) {
        return tree.integer(n, v.where);
      }));
    } else {
      tree.add(one, "max", tree.integer(v.most, v.where));
      tree.add(one, "min", tree.integer(v.lowest, v.where));
    }
    if (v.typical) tree.add(one, "typical", tree.integer(*v.typical, v.where));
    tree.add(v.scalar ? tensors : dims, v.name, std::move(one));
  }
  for (size_t i = 0; i < s.values.size(); ++i) {
    const Value& v = s.values[i];
    if (v.kind.empty()) continue;
    Raw one = tree.made(Raw::Kind::Map, v.where);
    tree.add(one, "kind", tree.word(v.kind, v.where));
    if (v.kind != "output") {
      tree.add(one, "dtype", tree.word(std::string(name_of(v.dtype)), v.where));
      tree.add(one, "shape", tree.shape(v.shape, v.where));
    }
    tree.add(tensors, names[i], std::move(one));
  }
  if (!dims.map.empty()) tree.add(root, "dims", std::move(dims));
  tree.add(root, "tensors", std::move(tensors));

  Raw ops = tree.made(Raw::Kind::List, s.where);
  for (const Call& call : s.calls) {
    const Where& where = call.where;
    const auto own = [&](const Tensor& t) { return t.builder == s.id && t.index < names.size(); };
    for (size_t i = 0; i < call.operands.size(); ++i)
      if (!own(call.operands[i]))
        diagnostics.error(tree.at(where), fmt::format("operand {} of '{}' is no tensor of this "
                                                      "builder",
                                                      i, call.kind));
    if (call.common.into && !own(*call.common.into))
      diagnostics.error(tree.at(where),
                        fmt::format("'into' of '{}' is no tensor of this builder", call.kind));
    Raw op = tree.made(Raw::Kind::Map, where);
    tree.add(op, "op", tree.word(call.kind, where));
    if (!call.operands.empty())
      tree.add(op, "in", tree.list(call.operands, where, [&](const Tensor& t) {
        return tree.word(own(t) ? names[t.index] : "", where);
      }));
    const auto name_at = [&](size_t i) { return tree.word(names[i], where); };
    if (call.results.size() == 1) tree.add(op, "out", name_at(call.results[0]));
    if (call.results.size() > 1) tree.add(op, "out", tree.list(call.results, where, name_at));
    for (const auto& [key, value] : call.attrs) tree.add(op, key, tree.attr(value, where));
    const Common& c = call.common;
    // An op that gives a state has a name of its own.
    if ((call.results.empty() || c.into) && !c.name.empty())
      tree.add(op, "name", tree.word(c.name, where));
    if (c.dtype) tree.add(op, "dtype", tree.word(std::string(name_of(*c.dtype)), where));
    if (!c.after.empty())
      tree.add(op, "after", tree.list(c.after, where, [&](const std::string& name) {
        return tree.word(name, where);
      }));
    for (const auto& [key, value] :
         {std::pair("phase", &c.phase), std::pair("overlap", &c.overlap),
          std::pair("overlap_group", &c.overlap_group), std::pair("priority", &c.priority)})
      if (!value->empty()) tree.add(op, key, tree.word(*value, where));
    ops.list.push_back(std::move(op));
  }
  tree.add(root, "ops", std::move(ops));
  for (const Setting& setting : s.settings)
    tree.add(root, setting.key, tree.attr(setting.value, setting.where));

  if (diagnostics.has_errors()) return graph_error(diagnostics);
  frontend::BuildOptions options;
  options.open_outputs = true;
  for (const std::string& text : s.collectives) {
    auto raw =
        frontend::parse_collectives(diagnostics.add_file("<collectives>", text), diagnostics);
    if (!raw) return graph_error(diagnostics);
    options.collectives.push_back(std::move(*raw));
  }
  auto graph = frontend::build(root, options, diagnostics);
  if (!graph) return graph_error(diagnostics);
  diagnostics.clear();
  return Graph(
      std::make_shared<const Graph::Data>(Graph::Data{std::move(*graph), std::move(diagnostics)}));
}

// ---- attributes ---------------------------------------------------------------------------------

Attrs GraphBuilder::list(const MatmulAttrs& a) {
  Attrs attrs;
  if (a.transpose_b) attrs.emplace_back("transpose_b", true);
  if (a.activation != "none") attrs.emplace_back("activation", a.activation);
  return attrs;
}

Attrs GraphBuilder::list(const RopeAttrs& a) {
  Attrs attrs = {{"head_dim", a.head_dim}};
  if (a.position) attrs.emplace_back("position", *a.position);
  attrs.emplace_back("theta", a.theta);
  if (a.interleaved) attrs.emplace_back("interleaved", true);
  if (!a.scaling.empty()) attrs.emplace_back("scaling", a.scaling);
  if (a.rotary_dim != 0) attrs.emplace_back("rotary_dim", a.rotary_dim);
  if (a.attention_factor != 1) attrs.emplace_back("attention_factor", a.attention_factor);
  return attrs;
}

Attrs GraphBuilder::list_given(const RopeAttrs& a) {
  Attrs attrs = list(a);
  if (a.theta == RopeAttrs{}.theta)
    std::erase_if(attrs, [](auto& one) { return one.first == "theta"; });
  return attrs;
}

Attrs GraphBuilder::list(const AttentionAttrs& a) {
  Attrs attrs = {{"head_dim", a.head_dim}};
  if (a.causal) attrs.emplace_back("causal", true);
  if (a.scale) attrs.emplace_back("scale", *a.scale);
  if (a.length) attrs.emplace_back("length", *a.length);
  if (a.window) attrs.emplace_back("window", *a.window);
  if (a.softcap) attrs.emplace_back("softcap", *a.softcap);
  return attrs;
}

Attrs GraphBuilder::list(const SliceAttrs& a) {
  Attrs attrs = {{"axis", a.axis}};
  if (a.begin) attrs.emplace_back("begin", *a.begin);
  if (a.end) attrs.emplace_back("end", *a.end);
  if (a.step != 1) attrs.emplace_back("step", a.step);
  return attrs;
}

Attrs GraphBuilder::list(const ReduceAttrs& a) {
  return {{"reduce", a.reduce}, {"algorithm", a.algorithm}};
}

}  // namespace maco
