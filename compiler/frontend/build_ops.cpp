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
  if (auto v = c.check.variables.find(name);
      v != c.check.variables.end() && v->second.kind == Variable::Kind::Dim)
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
    c.pending.push_back({name, loc, op_index, c.check.hidden_ops});
    return false;
  }
  const ir::Tensor& t = c.graph.tensors[it->second];
  const TensorState& state = c.tensor_state[it->second];
  if (!graph::check_read(c.check, op, t, loc)) return false;
  const auto id = ir::id_of<ir::TensorId>(it->second);
  if (t.kind == TensorKind::Output && c.check.writer(id).op < 0 && !state.poisoned) {
    c.pending.push_back({name, loc, op_index, c.check.hidden_ops});
    return false;
  }
  op.in.push_back(id);
  op.in_loc.push_back(loc);
  return !state.poisoned;
}

bool write_output(BuildContext& c, const std::string& name, ir::Loc loc, size_t op_index,
                  ir::Op& op) {
  const auto [it, fresh] = c.tensor_of.emplace(name, c.graph.tensors.size());
  if (fresh) {
    ir::Tensor t;
    t.name = name;
    t.loc = loc;
    c.graph.tensors.push_back(std::move(t));
    c.tensor_state.emplace_back();
    c.check.tensors.emplace(name, loc);
  }
  const auto id = ir::id_of<ir::TensorId>(it->second);
  const graph::Writer before = c.check.writer(id);
  const auto hint = [&] {
    const bool same = before.loc.line == loc.line && before.loc.column == loc.column;
    return c.env != nullptr && same
               ? fmt::format("; put '{{{}}}' into its name", c.env->vars.back().name)
               : "";
  };
  if (!graph::check_write(c.check, op, op_index, id, loc, hint)) return false;
  op.out.push_back(id);
  return !c.tensor_state[it->second].poisoned;
}

/// The op that 'x.relu(...)' means.
std::string hint_for_method(const BuildContext& c, const std::string& kind) {
  const size_t dot = kind.rfind('.');
  const std::string called = ops::synonym_of(kind);
  if (dot == std::string::npos || called.empty() || c.tensor_of.count(kind.substr(0, dot)) == 0)
    return "";
  return fmt::format("; write '{}({}, ...)'", called, kind.substr(0, dot));
}

const ops::OpDef* read_kind(BuildContext& c, const Raw& kind) {
  if (!expect(c, kind, Raw::Kind::String, "'op'", "the kind of an op")) return nullptr;
  return graph::check_kind(c.check, kind.text, kind.loc,
                           [&] { return hint_for_method(c, kind.text); });
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

/// Reads `in`, and what each name stands for. Returns false if an input can't be used. `def`:
/// nullptr if the op's kind is unknown.
bool read_inputs(BuildContext& c, const Raw& raw, const std::string& what, const ops::OpDef* def,
                 size_t op_index, ir::Op& op) {
  const auto in =
      read_operands(c, raw, what, "in", false, def != nullptr && def->min_in > 0, op.loc);
  if (!in) return false;
  bool good = true;
  if (def != nullptr) {
    const int most = ops::most_inputs(*def, op);
    if (most >= 0 && in->size() > static_cast<size_t>(most) && refuse_words(c, *def, *in))
      return false;
    if (!names_operands(c, *def, raw))
      good = graph::check_count(c.check, op.kind, in->size(), {"takes", "input", def->min_in, most},
                                raw.find("in") ? raw.find("in")->loc : op.loc);
  }
  for (const auto& [name, loc] : *in) good = read_input(c, name, loc, op_index, op) && good;
  return good;
}

/// As read_inputs, for `out`.
bool read_outputs(BuildContext& c, const Raw& raw, const std::string& what, const ops::OpDef* def,
                  size_t op_index, ir::Op& op) {
  const auto out =
      read_operands(c, raw, what, "out", true, def != nullptr && def->min_out > 0, op.loc);
  if (!out) {
    c.check.hidden_ops = true;
    return false;
  }
  const Raw* found = raw.find("out");
  bool good = true;
  if (def != nullptr)
    good = graph::check_count(c.check, op.kind, out->size(),
                              {"gives", "output", def->min_out, ops::most_outputs(*def, op)},
                              found != nullptr ? found->loc : op.loc);
  if (found != nullptr)
    op.out_loc = found->kind == Raw::Kind::List && !out->empty() ? out->front().second : found->loc;
  for (const auto& [name, loc] : *out) good = write_output(c, name, loc, op_index, op) && good;
  return good;
}

void build_op(BuildContext& c, const Raw& raw, bool sound) {
  const int errors = c.report.errors();
  if (!sound || !expect(c, raw, Raw::Kind::Map, "an op", "a map of keys")) {
    c.check.hidden_ops = true;
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
  good = read_inputs(c, raw, what, def, op_index, op) && good;
  good = read_outputs(c, raw, what, def, op_index, op) && good;
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
    if (!op.named && !op.out.empty()) ++c.check.called[c.graph[op.out[0]].name];
    if (!op.named) continue;
    ++c.check.called[op.name];
    c.op_of.emplace(op.name, i);
    graph::give_name(c.check, c.check.ops, "ops", op.name, c.op_state[i].name_loc);
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
    c.check.ops.emplace(name, op.loc);
    op.name = std::move(name);
  }
}

/// What a name that no tensor has may be. `tensors`: the names of all.
std::string hint_for_tensor(BuildContext& c, const std::string& name,
                            const std::vector<std::string>& tensors) {
  if (const std::string other = what_is(c, name); !other.empty())
    return fmt::format("; it is {}", other);
  const auto op = c.op_of.find(name);
  if (op == c.op_of.end()) return graph::suggest(c.check, name, tensors);
  const ir::Op& writer = c.graph.ops[op->second];
  if (writer.out.empty()) return "; it is the name of an op";
  return fmt::format("; it is the name of an op, whose output is '{}'",
                     c.graph[writer.out[0]].name);
}

void report_pending(BuildContext& c) {
  std::vector<std::string> names;
  for (const ir::Tensor& t : c.graph.tensors)
    if (t.kind != TensorKind::Scalar) names.push_back(t.name);
  for (const PendingRead& read : c.pending) {
    const auto it = c.tensor_of.find(read.name);
    graph::Writer writer;
    if (it != c.tensor_of.end()) {
      writer = c.check.writer(ir::id_of<ir::TensorId>(it->second));
      if (writer.op < 0) continue;  // reported where it is declared
    } else if (read.excused || !c.tensors_sound) {
      continue;
    }
    graph::unwritten_read(c.check, read.name, read.loc, read.op, writer,
                          [&] { return hint_for_tensor(c, read.name, names); });
  }
}

}  // namespace

void build_ops(BuildContext& c, const Raw& ops) {
  if (!expect(c, ops, Raw::Kind::List, "'ops'", "a list of ops")) {
    c.check.hidden_ops = true;
    return;
  }
  unroll_ops(c, ops, {}, build_op);
}

void finish_ops(BuildContext& c) {
  name_ops(c);
  report_pending(c);
  if (!c.check.hidden_ops) graph::check_written(c.check);
}

}  // namespace maco::frontend
