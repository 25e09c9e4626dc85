#include "tests/fuzz/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/op.h"
#include "tests/fuzz/random_graph.h"

namespace maco::fuzz {

namespace {

using ops::AttrSpec;
using ops::AttrType;

const std::set<std::string> kBinary = {"add", "sub", "mul", "div", "pow", "maximum", "minimum",
                                       "eq",  "ne",  "lt",  "le",  "gt",  "ge"};

const ops::OpDef& def_of(const std::string& feature) {
  return *ops::find_op(feature.substr(0, feature.find(' ')));
}

// An all-reduce's algorithm is part of the feature.
bool is_asked_for(const ops::OpDef& def, const AttrSpec& a, const std::string& word) {
  const auto words = ops::algorithm_words(def.kind);
  return a.name != "algorithm" ||
         (def.kind != "allreduce" &&
          (word == "auto" || std::count(words.begin(), words.end(), word) > 0));
}

// Whether `dtype` makes a result of another type. A cast always has it, an argmax is of i32, and a
// state has its own type.
bool converts(const ops::OpDef& def) {
  return def.max_out != 0 && def.max_in != 0 && def.kind != "cast" && def.kind != "argmax" &&
         def.kind != "kv_append";
}

// Whether the number of operands varies without an attribute that replaces one.
bool counts_operands(const ops::OpDef& def) {
  return def.max_in > def.min_in && !kBinary.count(def.kind) && def.kind != "rope" &&
         def.kind != "where";
}

std::string written(const AttrSpec& a, const ir::AttrValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return fmt::format("{} = {}", a.name, *flag);
  if (a.type == AttrType::Word) return fmt::format("{} = {}", a.name, std::get<std::string>(value));
  if (a.type != AttrType::RuntimeInt) return a.name;
  const auto& expr = std::get<ir::Expr>(value);
  if (expr.is_constant()) return a.name + " constant";
  return a.name + (expr.uses("rank") ? " of rank" : " of a scalar");
}

// Forms that the registry doesn't tell.
std::vector<std::string> more_forms(const std::string& kind) {
  if (kBinary.count(kind)) return {"y of x's shape", "y[N]", "y[1]"};
  if (kind == "attention") return {"as many heads of keys", "grouped heads"};
  if (kind == "slice") return {"bounds of rank", "bounds of a dim", "negative begin"};
  if (kind == "reshape") return {"shape with -1", "shape without -1"};
  if (kind == "cast") return {"to f32", "to f16", "to bf16", "to i32"};
  if (kind == "concat") return {"2 operands", "3 operands"};
  if (kind == "split") return {"2 results", "3 results", "4 results"};
  if (kind == "broadcast") return {"root = 0", "root above 0"};
  if (kind == "ring_shift") return {"by below 0", "by above 0"};
  if (kind == "embedding") return {"ids[M]", "ids[M,N]"};
  return {};
}

std::vector<std::string> more_forms_of(const ir::Graph& g, const ir::Op& op) {
  const auto tensor = [&](size_t i) -> const ir::Tensor& { return g[op.in[i]]; };
  const auto last = [&](size_t i) { return tensor(i).shape.back().constant().value_or(0); };
  const auto attr = [&](const char* name) {
    const auto it = op.attrs.find(name);
    return it == op.attrs.end() ? nullptr : &it->second.value;
  };
  const auto integer = [&](const char* name) {
    const ir::AttrValue* v = attr(name);
    return v ? std::get<ir::Expr>(*v).constant() : std::nullopt;
  };
  std::vector<std::string> s;
  if (kBinary.count(op.kind) && op.in.size() == 2)
    s.push_back(tensor(1).shape == tensor(0).shape ? "y of x's shape"
                : last(1) == 1                     ? "y[1]"
                                                   : "y[N]");
  if (op.kind == "attention")
    s.push_back(last(0) == last(1) ? "as many heads of keys" : "grouped heads");
  if (op.kind == "slice") {
    for (const char* name : {"begin", "end"}) {
      const ir::AttrValue* v = attr(name);
      if (v && !std::get<ir::Expr>(*v).is_constant())
        s.push_back(std::get<ir::Expr>(*v).uses("rank") ? "bounds of rank" : "bounds of a dim");
    }
    if (integer("begin").value_or(0) < 0) s.push_back("negative begin");
  }
  if (op.kind == "reshape") {
    const auto& entries = std::get<std::vector<ir::Expr>>(*attr("shape"));
    const bool open = std::any_of(entries.begin(), entries.end(),
                                  [](const ir::Expr& e) { return e.constant() == -1; });
    s.push_back(open ? "shape with -1" : "shape without -1");
  }
  if (op.kind == "cast") s.push_back(fmt::format("to {}", ir::name(g[op.out[0]].dtype)));
  if (op.kind == "concat") s.push_back(fmt::format("{} operands", op.in.size()));
  if (op.kind == "split") s.push_back(fmt::format("{} results", op.out.size()));
  if (op.kind == "broadcast") s.emplace_back(integer("root") == 0 ? "root = 0" : "root above 0");
  if (op.kind == "ring_shift" && integer("by").value_or(0) != 0)
    s.emplace_back(*integer("by") < 0 ? "by below 0" : "by above 0");
  if (op.kind == "embedding") s.emplace_back(tensor(1).shape.size() == 1 ? "ids[M]" : "ids[M,N]");
  return s;
}

}  // namespace

std::string feature_of(const ir::Op& op) {
  if (op.kind != "allreduce") return op.kind;
  const auto it = op.attrs.find("algorithm");
  return op.kind + " " + (it == op.attrs.end() ? "auto" : std::get<std::string>(it->second.value));
}

std::vector<std::string> all_forms(const std::string& feature) {
  const ops::OpDef& def = def_of(feature);
  std::vector<std::string> forms;
  for (const AttrSpec& a : def.attrs) {
    if (a.internal) continue;
    if (a.name == "axis") {
      for (const char* form : {"axis = 0", "axis above 0", "axis below 0"})
        forms.emplace_back(form);
    } else if (a.type == AttrType::Bool) {
      for (const char* word : {"false", "true"})
        forms.push_back(fmt::format("{} = {}", a.name, word));
    } else if (a.type == AttrType::Word) {
      for (const std::string& word : a.words)
        if (is_asked_for(def, a, word)) forms.push_back(fmt::format("{} = {}", a.name, word));
    } else {
      if (!a.required) forms.push_back("no " + a.name);
      if (a.type == AttrType::RuntimeInt)
        for (const char* what : {" constant", " of a scalar", " of rank"})
          forms.push_back(a.name + what);
      else if (!a.required)
        forms.push_back(a.name);
    }
  }
  if (converts(def)) forms.emplace_back("dtype");
  if (counts_operands(def))
    for (int n = def.min_in; n <= def.max_in; ++n)
      forms.push_back(fmt::format("{} operand{}", n, n == 1 ? "" : "s"));
  for (std::string& form : more_forms(def.kind)) forms.push_back(std::move(form));
  return forms;
}

bool takes_form(const std::string& feature, const std::string& form, ir::DType dtype) {
  if (!takes(feature, dtype)) return false;
  static const std::set<std::string> floats = {"activation = silu", "activation = gelu",
                                               "reduce = avg", "dtype"};
  return ir::is_float(dtype) || !floats.count(form);
}

std::vector<std::string> forms_of(const ir::Graph& g, const ir::Op& op) {
  const ops::OpDef& def = def_of(op.kind);
  std::vector<std::string> forms;
  for (const AttrSpec& a : def.attrs) {
    const auto it = op.attrs.find(a.name);
    if (it == op.attrs.end())
      forms.push_back(a.type == AttrType::Bool || a.type == AttrType::Word
                          ? fmt::format("{} = {}", a.name, a.default_text)
                          : "no " + a.name);
    else if (a.name == "axis") {
      const int64_t axis = *std::get<ir::Expr>(it->second.value).constant();
      forms.emplace_back(axis == 0 ? "axis = 0" : axis < 0 ? "axis below 0" : "axis above 0");
    } else {
      forms.push_back(written(a, it->second.value));
    }
  }
  if (converts(def) && op.dtype && !op.in.empty() &&
      *op.dtype != g[op.in[op.kind == "where" ? 1 : 0]].dtype)
    forms.emplace_back("dtype");
  if (counts_operands(def))
    forms.push_back(fmt::format("{} operand{}", op.in.size(), op.in.size() == 1 ? "" : "s"));
  for (std::string& form : more_forms_of(g, op)) forms.push_back(std::move(form));
  return forms;
}

const std::vector<std::string>& all_settings() {
  static const std::vector<std::string> list = {
      "no overlap",      "overlap = none",  "overlap = conservative", "overlap = aggressive",
      "an op's overlap", "priority = high", "priority = low",         "overlap_group",
      "after",           "phases",          "overlap_regions",        "ranges with tasks"};
  return list;
}

std::vector<std::string> settings_of(const ir::Graph& g) {
  std::set<std::string> s;
  s.insert(g.key_loc.count("overlap") ? fmt::format("overlap = {}", ir::name(g.overlap))
                                      : "no overlap");
  for (const ir::Op& op : g.ops) {
    if (op.overlap) s.insert("an op's overlap");
    if (op.priority != ir::Priority::Normal)
      s.insert(fmt::format("priority = {}", ir::name(op.priority)));
    if (op.overlap_group) s.insert("overlap_group");
    if (!op.after.empty()) s.insert("after");
  }
  if (!g.phases.empty()) s.insert("phases");
  if (!g.overlap_regions.empty()) s.insert("overlap_regions");
  if (const auto* roles = std::get_if<ir::Roles>(&g.sm_roles.value))
    if (const auto* ranges = std::get_if<std::vector<ir::RoleRange>>(roles))
      if (std::any_of(ranges->begin(), ranges->end(),
                      [](const ir::RoleRange& r) { return !r.tasks.empty(); }))
        s.insert("ranges with tasks");
  return {s.begin(), s.end()};
}

std::vector<std::string> unknown_features() {
  std::set<std::string> there;
  for (const ops::OpDef& def : ops::all_ops()) {
    // Kernels of users need Clang; tests/e2e/cuda_test.py has them.
    if (def.internal || !def.tile || def.kind == "cuda") continue;
    if (def.kind != "allreduce") {
      there.insert(def.kind);
      continue;
    }
    there.insert(def.kind + " auto");
    for (const std::string& algorithm : ops::algorithm_words(def.kind))
      there.insert(def.kind + " " + algorithm);
  }
  const std::set<std::string> known(features().begin(), features().end());
  std::vector<std::string> unknown;
  std::set_symmetric_difference(known.begin(), known.end(), there.begin(), there.end(),
                                std::back_inserter(unknown));
  return unknown;
}

}  // namespace maco::fuzz
