// build_ops.cpp: ops, their operands and their names.
//
// Ops are built in definition order. A read refers to what earlier ops wrote. A name that doesn't
// exist yet is kept until all ops are known, because the message depends on what follows: whether
// the name is defined later or nowhere.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/build.h"
#include "compiler/ops/other_names.h"

namespace maco::frontend {

using ir::TensorKind;

const std::vector<std::string>& common_op_keys() {
  static const std::vector<std::string> keys = {
      "op", "in", "out", "name", "dtype", "after", "phase", "overlap", "overlap_group", "priority"};
  return keys;
}

namespace {

std::string what_is(const BuildContext& c, const std::string& name) {
  if (auto v = c.variables.find(name);
      v != c.variables.end() && v->second.kind == Variable::Kind::Dim)
    return "a dim";
  if (name == "rank" || name == "world") return "a name of expressions";
  return "";
}

void read_common(BuildContext& c, const Raw& raw, const std::string& what, ir::Op& op,
                 OpState& state) {
  if (const Raw* name = raw.find("name")) {
    if (auto text = read_name(c, *name, "the name of " + what)) {
      op.name = *text;
      op.named = true;
      state.name_loc = name->loc;
    }
  }
  if (const Raw* dtype = raw.find("dtype"))
    op.dtype = read_enum<ir::DType>(c, *dtype, "'dtype' of " + what, words_of_dtypes());
  if (const Raw* after = raw.find("after")) {
    for (auto& [name, loc] : read_names(c, *after, "an op that " + what + " comes after", true)) {
      op.after.push_back(std::move(name));
      op.after_loc.push_back(loc);
    }
  }
  if (const Raw* phase = raw.find("phase")) {
    op.phase = read_name(c, *phase, "'phase' of " + what);
    op.phase_loc = phase->loc;
  }
  if (const Raw* overlap = raw.find("overlap"))
    op.overlap = read_enum<ir::Overlap>(c, *overlap, "'overlap' of " + what,
                                        {"none", "conservative", "aggressive"});
  if (const Raw* group = raw.find("overlap_group"))
    op.overlap_group = read_name(c, *group, "'overlap_group' of " + what);
  if (const Raw* priority = raw.find("priority"))
    if (auto p = read_enum<ir::Priority>(c, *priority, "'priority' of " + what,
                                         {"low", "normal", "high"}))
      op.priority = *p;
}

/// Reads an input. Returns false if it can't be used. An undefined name is kept for later.
bool read_input(BuildContext& c, const std::string& name, ir::Loc loc, size_t op_index,
                ir::Op& op) {
  const auto it = c.tensor_of.find(name);
  if (it == c.tensor_of.end()) {
    c.pending.push_back({name, loc, op_index, c.hidden_outputs});
    return false;
  }
  const ir::Tensor& t = c.graph.tensors[it->second];
  const TensorState& state = c.tensor_state[it->second];
  if (t.kind == TensorKind::Scalar) {
    if (c.error(
            loc,
            fmt::format(
                "'{}' is a scalar, but '{}' reads tensors; scalars stand in run-time attributes",
                name, op.kind)))
      c.note(t.loc, fmt::format("'{}' is declared here", name));
    return false;
  }
  if (t.kind == TensorKind::Output && state.writer < 0 && !state.poisoned) {
    c.pending.push_back({name, loc, op_index, c.hidden_outputs});
    return false;
  }
  op.in.push_back(ir::id_of<ir::TensorId>(it->second));
  op.in_loc.push_back(loc);
  return !state.poisoned;
}

bool write_output(BuildContext& c, const std::string& name, ir::Loc loc, size_t op_index,
                  ir::Op& op) {
  auto it = c.tensor_of.find(name);
  if (it == c.tensor_of.end()) {
    ir::Tensor t;
    t.name = name;
    t.loc = loc;
    it = c.tensor_of.emplace(name, c.graph.tensors.size()).first;
    c.graph.tensors.push_back(std::move(t));
    c.tensor_state.push_back({false, static_cast<int32_t>(op_index), loc});
    op.out.push_back(ir::id_of<ir::TensorId>(it->second));
    return true;
  }
  const ir::Tensor& t = c.graph.tensors[it->second];
  TensorState& state = c.tensor_state[it->second];
  const bool read_only =
      t.kind == TensorKind::Input || t.kind == TensorKind::Param || t.kind == TensorKind::Scalar;
  if (read_only) {
    if (c.error(loc, fmt::format("'{}' is {} {}, which the graph only reads", name,
                                 t.kind == TensorKind::Input ? "an" : "a", ir::name(t.kind))))
      c.note(t.loc, fmt::format("'{}' is declared here", name));
    return false;
  }
  if (t.kind != TensorKind::State && state.writer >= 0) {
    const std::string_view what = t.kind == TensorKind::Output ? "output" : "temporary";
    if (c.error(loc, fmt::format("{} '{}' is written twice, but exactly one op may write it", what,
                                 name))) {
      if (c.env != nullptr && state.written.line == loc.line && state.written.column == loc.column)
        c.report.append(fmt::format("; put '{{{}}}' into its name", c.env->vars.back().name));
      c.note(state.written, "it is written here first");
    }
    return false;
  }
  if (std::find(op.out.begin(), op.out.end(), ir::id_of<ir::TensorId>(it->second)) !=
      op.out.end()) {
    c.error(loc, fmt::format("'{}' is written twice by this op", name));
    return false;
  }
  if (state.writer < 0) {
    state.writer = static_cast<int32_t>(op_index);
    state.written = loc;
  }
  op.out.push_back(ir::id_of<ir::TensorId>(it->second));
  return !state.poisoned;
}

std::string count_text(int lo, int hi, const char* what) {
  const char* s = (hi < 0 ? lo : hi) == 1 ? "" : "s";
  if (hi < 0) return fmt::format("at least {} {}{}", lo, what, s);
  if (hi == 0) return fmt::format("no {}s", what);
  if (lo == hi) return fmt::format("{} {}{}", lo, what, s);
  return fmt::format("{} {} {} {}s", lo, hi == lo + 1 ? "or" : "to", hi, what);
}

bool check_count(BuildContext& c, ir::Loc loc, const std::string& kind, const char* verb,
                 const char* what, size_t count, int lo, int hi) {
  const auto n = static_cast<int>(std::min<size_t>(count, INT32_MAX));
  if (n >= lo && (hi < 0 || n <= hi)) return true;
  c.error(loc, fmt::format("'{}' {} {}, found {}", kind, verb, count_text(lo, hi, what), n));
  return false;
}

std::string hint_for_kind(BuildContext& c, const std::string& kind) {
  // 'x.relu(...)'
  const size_t dot = kind.rfind('.');
  const std::string called = ops::synonym_of(kind);
  if (dot != std::string::npos && !called.empty() && c.tensor_of.count(kind.substr(0, dot)) > 0)
    return fmt::format("; write '{}({}, ...)'", called, kind.substr(0, dot));
  std::string hint = ops::hint_for_op(kind);
  if (!hint.empty()) return hint;
  const std::string near = suggest(c, kind, ops::op_kinds());
  return near.empty() ? ops::kOwnKernelHint : near;
}

const ops::OpDef* read_kind(BuildContext& c, const Raw& kind) {
  if (!expect(c, kind, Raw::Kind::String, "'op'", "the kind of an op")) return nullptr;
  const ops::OpDef* def = ops::find_op(kind.text);
  if (def != nullptr && (!def->internal || c.options.internal_ops)) return def;
  if (!c.error(kind.loc, fmt::format("unknown op {}", quoted(kind.text)))) return nullptr;
  c.report.append(hint_for_kind(c, kind.text));
  return nullptr;
}

/// The names in `in` or `out`; nothing, after an error, if the key is present but not readable.
std::optional<std::vector<std::pair<std::string, ir::Loc>>> read_operands(
    BuildContext& c, const Raw& raw, const std::string& what, const char* key, bool or_one,
    bool required, ir::Loc loc) {
  const Raw* found = raw.find(key);
  if (found == nullptr) {
    if (!required) return std::vector<std::pair<std::string, ir::Loc>>{};
    is_missing(c, raw, what, key, loc);
    return std::nullopt;
  }
  bool complete = false;
  auto names = read_names(c, *found, fmt::format("'{}' of {}", key, what), or_one, &complete);
  if (!complete) return std::nullopt;
  return names;
}

/// Reports words of attributes among the operands: 'cast(x, bf16)', 'allreduce(x, sum)'.
bool refuse_words(BuildContext& c, const ops::OpDef& def,
                  const std::vector<std::pair<std::string, ir::Loc>>& in) {
  bool found = false;
  for (const auto& [name, loc] : in) {
    if (c.tensor_of.count(name) > 0) continue;
    std::string attr = ir::dtype_from_name(name) ? "dtype" : "";
    for (const ops::AttrSpec& spec : def.attrs)
      if (attr.empty() && !spec.internal)
        if (const auto words = ops::words_of(def, spec, c.graph.algorithms);
            std::find(words.begin(), words.end(), name) != words.end())
          attr = spec.name;
    if (attr.empty()) continue;
    c.error(loc, fmt::format("'{0}' is no tensor; write '{1} = {0}' for the attribute of '{2}'",
                             name, attr, def.kind));
    found = true;
  }
  return found;
}

void build_op(BuildContext& c, const Raw& raw, bool sound) {
  const int errors = c.report.errors();
  if (!sound || !expect(c, raw, Raw::Kind::Map, "an op", "a map of keys")) {
    c.hidden_outputs = true;
    return;
  }
  const size_t op_index = c.graph.ops.size();
  ir::Op op;
  OpState state;
  op.loc = raw.loc;
  const Raw* kind = require(c, raw, "the op", "op");
  const ops::OpDef* def = kind == nullptr ? nullptr : read_kind(c, *kind);
  if (kind != nullptr) op.loc = kind->loc;
  if (kind != nullptr && kind->kind == Raw::Kind::String) op.kind = kind->text;
  const std::string what = op.kind.empty() ? "the op" : quoted(op.kind);
  check_duplicate_keys(c, raw, what);
  read_common(c, raw, what, op, state);
  if (def != nullptr) build_attrs(c, *def, raw, op);

  bool good = def != nullptr;
  const auto in =
      read_operands(c, raw, what, "in", false, def != nullptr && def->min_in > 0, op.loc);
  const auto out =
      read_operands(c, raw, what, "out", true, def != nullptr && def->min_out > 0, op.loc);
  const int most = def == nullptr ? -1 : ops::most_inputs(*def, op);
  const bool words =
      most >= 0 && in && in->size() > static_cast<size_t>(most) && refuse_words(c, *def, *in);
  if (words) good = false;
  if (def != nullptr && in && !words && !names_operands(c, *def, raw))
    good = check_count(c, raw.find("in") ? raw.find("in")->loc : op.loc, op.kind, "takes", "input",
                       in->size(), def->min_in, ops::most_inputs(*def, op)) &&
           good;
  if (def != nullptr && out)
    good = check_count(c, raw.find("out") ? raw.find("out")->loc : op.loc, op.kind, "gives",
                       "output", out->size(), def->min_out, ops::most_outputs(*def, op)) &&
           good;
  good = good && in && out;
  if (in && !words)
    for (const auto& [name, loc] : *in) good = read_input(c, name, loc, op_index, op) && good;
  if (out) {
    if (const Raw* found = raw.find("out"))
      op.out_loc =
          found->kind == Raw::Kind::List && !out->empty() ? out->front().second : found->loc;
    for (const auto& [name, loc] : *out) good = write_output(c, name, loc, op_index, op) && good;
  } else {
    c.hidden_outputs = true;
  }
  state.broken = !good || c.report.errors() > errors;
  if (state.broken)
    for (ir::TensorId id : op.out)
      if (c.graph[id].kind == TensorKind::Temp || c.graph[id].shape.empty())
        c.tensor_state[index(id)].poisoned = true;
  c.graph.ops.push_back(std::move(op));
  c.op_state.push_back(state);
}

/// Keeps names given by the user, and makes the others so that none is used twice.
void name_ops(BuildContext& c) {
  for (size_t i = 0; i < c.graph.ops.size(); ++i) {
    const ir::Op& op = c.graph.ops[i];
    if (!op.named && !op.out.empty()) ++c.called[c.graph[op.out[0]].name];
    if (!op.named) continue;
    ++c.called[op.name];
    const auto [it, fresh] = c.op_of.emplace(op.name, i);
    if (!fresh && c.error(c.op_state[i].name_loc, fmt::format("two ops are called '{}'", op.name)))
      c.note(c.op_state[it->second].name_loc, "the first is here");
  }
  std::unordered_map<std::string, int> used;  // how often a base name was taken
  for (size_t i = 0; i < c.graph.ops.size(); ++i) {
    ir::Op& op = c.graph.ops[i];
    if (op.named) continue;
    const bool by_output = !op.out.empty();
    const std::string base = by_output ? c.graph[op.out[0]].name : op.kind.empty() ? "op" : op.kind;
    if (const auto other = c.op_of.find(base); by_output && !c.options.internal_ops &&
                                               other != c.op_of.end() &&
                                               c.graph.ops[other->second].named) {
      if (c.error(op.loc, fmt::format("this op has no name and is called '{}' by its first output, "
                                      "but another op is named so",
                                      base)))
        c.note(c.op_state[other->second].name_loc, "it is named here");
    }
    std::string name = base;
    int& n = used[base];
    if (by_output && n == 0) {
      n = 1;
    } else {
      name = fmt::format("{}_{}", base, ++n);
    }
    while (!c.op_of.emplace(name, i).second) name = fmt::format("{}_{}", base, ++n);
    op.name = std::move(name);
  }
}

void report_pending(BuildContext& c) {
  std::vector<std::string> names;
  for (const ir::Tensor& t : c.graph.tensors)
    if (t.kind != TensorKind::Scalar) names.push_back(t.name);
  for (const PendingRead& read : c.pending) {
    const auto it = c.tensor_of.find(read.name);
    if (it != c.tensor_of.end()) {
      const TensorState& state = c.tensor_state[it->second];
      if (state.writer < 0) continue;  // reported where it is declared
      if (state.writer == static_cast<int32_t>(read.op))
        c.error(read.loc, fmt::format("'{}' is read by the op that defines it", read.name));
      else if (c.error(read.loc, fmt::format("'{}' is read before it is defined", read.name)))
        c.note(state.written, fmt::format("'{}' is defined here", read.name));
      continue;
    }
    if (read.excused || !c.tensors_sound) continue;
    if (!c.error(read.loc, fmt::format("'{}' is not defined", read.name))) continue;
    std::string hint;
    if (const std::string other = what_is(c, read.name); !other.empty()) {
      hint = fmt::format("; it is {}", other);
    } else if (auto op = c.op_of.find(read.name); op != c.op_of.end()) {
      hint = "; it is the name of an op";
      const ir::Op& writer = c.graph.ops[op->second];
      if (!writer.out.empty())
        hint += fmt::format(", whose output is '{}'", c.graph[writer.out[0]].name);
    } else {
      hint = suggest(c, read.name, names);
    }
    c.report.append(hint);
  }
}

}  // namespace

void build_ops(BuildContext& c, const Raw& ops) {
  if (!expect(c, ops, Raw::Kind::List, "'ops'", "a list of ops")) {
    c.hidden_outputs = true;
    return;
  }
  unroll_ops(c, ops, {}, build_op);
}

void finish_ops(BuildContext& c) {
  name_ops(c);
  report_pending(c);
  if (c.hidden_outputs) return;
  for (size_t i = 0; i < c.graph.tensors.size(); ++i) {
    const ir::Tensor& t = c.graph.tensors[i];
    if (t.kind == TensorKind::Output && c.tensor_state[i].writer < 0)
      c.error(t.loc, fmt::format("no op writes output '{}'", t.name));
  }
}

}  // namespace maco::frontend
