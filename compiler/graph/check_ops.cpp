// check_ops.cpp: checks ops, their names and operands; who writes a tensor, and who reads it when.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/check_parts.h"
#include "compiler/ops/op.h"
#include "compiler/ops/other_names.h"

namespace maco::graph {

using ir::TensorKind;

namespace {

std::string count_text(int lo, int hi, const char* what) {
  const char* s = (hi < 0 ? lo : hi) == 1 ? "" : "s";
  if (hi < 0) return fmt::format("at least {} {}{}", lo, what, s);
  if (hi == 0) return fmt::format("no {}s", what);
  if (lo == hi) return fmt::format("{} {}{}", lo, what, s);
  return fmt::format("{} {} {} {}s", lo, hi == lo + 1 ? "or" : "to", hi, what);
}

/// The place of an op's outputs.
ir::Loc out_loc(const ir::Op& op) { return op.out_loc.known() ? op.out_loc : op.loc; }

void check_inputs(Check& c, size_t index_of_op, const std::vector<Writer>& writers) {
  const ir::Op& op = c.graph.ops[index_of_op];
  for (size_t k = 0; k < op.in.size(); ++k) {
    const ir::Tensor& t = c.graph[op.in[k]];
    const ir::Loc loc = k < op.in_loc.size() ? op.in_loc[k] : op.loc;
    if (!check_read(c, op, t, loc)) continue;
    if ((t.kind == TensorKind::Temp || t.kind == TensorKind::Output) && c.writer(op.in[k]).op < 0)
      unwritten_read(c, t.name, loc, index_of_op, writers[index(op.in[k])]);
  }
}

void check_outputs(Check& c, size_t index_of_op) {
  ir::Op op = c.graph.ops[index_of_op];
  std::vector<ir::TensorId> out = std::move(op.out);
  op.out.clear();
  for (const ir::TensorId id : out) {
    check_write(c, op, index_of_op, id, out_loc(op));
    op.out.push_back(id);
  }
}

void check_op(Check& c, const ir::Op& op) {
  if (!ir::is_identifier(op.name))
    check_name(c, op.name, op.loc, fmt::format("the name of '{}'", op.kind));
  for (const auto* name : {&op.phase, &op.overlap_group})
    if (*name)
      check_name(
          c, **name, op.loc,
          fmt::format("'{}' of '{}'", name == &op.phase ? "phase" : "overlap_group", op.kind));
  const ops::OpDef* def = check_kind(c, op.kind, op.loc);
  if (!def) return;
  // Attributes that passes add decide how many operands there are.
  if (!check_attrs(c, op)) return;
  check_count(c, op.kind, op.in.size(), {"takes", "input", def->min_in, ops::most_inputs(*def, op)},
              op.loc);
  check_count(c, op.kind, op.out.size(),
              {"gives", "output", def->min_out, ops::most_outputs(*def, op)}, op.loc);
}

}  // namespace

const ops::OpDef* check_kind(Check& c, const std::string& kind, ir::Loc loc,
                             const Report::Hint& hint) {
  const ops::OpDef* def = ops::find_op(kind);
  if (def && (!def->internal || c.options.internal_ops)) return def;
  c.error(loc, fmt::format("unknown op {}", quoted(kind)), [&] {
    std::string text = hint ? hint() : "";
    if (text.empty()) text = ops::hint_for_op(kind);
    if (text.empty()) text = suggest(c, kind, ops::op_kinds());
    return text.empty() ? ops::kOwnKernelHint : text;
  });
  return nullptr;
}

bool check_count(Check& c, const std::string& kind, size_t count, const Counted& rule,
                 ir::Loc loc) {
  const auto n = static_cast<int>(std::min<size_t>(count, INT32_MAX));
  if (n >= rule.lo && (rule.hi < 0 || n <= rule.hi)) return true;
  c.error(loc, fmt::format("'{}' {} {}, found {}", kind, rule.verb,
                           count_text(rule.lo, rule.hi, rule.what), n));
  return false;
}

bool check_read(Check& c, const ir::Op& op, const ir::Tensor& t, ir::Loc loc) {
  if (t.kind != TensorKind::Scalar) return true;
  if (c.error(loc, fmt::format("'{}' is a scalar, but '{}' reads tensors; scalars stand in "
                               "run-time attributes",
                               t.name, op.kind)))
    c.note(t.loc, fmt::format("'{}' is declared here", t.name));
  return false;
}

void unwritten_read(Check& c, const std::string& name, ir::Loc loc, size_t op, const Writer& writer,
                    const Report::Hint& hint) {
  if (writer.op < 0)
    c.error(loc, fmt::format("'{}' is not defined", name), hint);
  else if (writer.op == static_cast<int64_t>(op))
    c.error(loc, fmt::format("'{}' is read by the op that defines it", name));
  else if (c.error(loc, fmt::format("'{}' is read before it is defined", name)))
    c.note(writer.loc, fmt::format("'{}' is defined here", name));
}

bool check_write(Check& c, const ir::Op& op, size_t index_of_op, ir::TensorId id, ir::Loc loc,
                 const Report::Hint& hint) {
  const ir::Tensor& t = c.graph[id];
  if (c.writers.size() < c.graph.tensors.size()) c.writers.resize(c.graph.tensors.size());
  Writer& writer = c.writers[index(id)];
  const bool first = writer.op < 0;
  if (t.kind == TensorKind::Input || t.kind == TensorKind::Param || t.kind == TensorKind::Scalar) {
    if (c.error(loc, fmt::format("'{}' is {} {}, which the graph only reads", t.name,
                                 t.kind == TensorKind::Input ? "an" : "a", ir::name(t.kind))))
      c.note(t.loc, fmt::format("'{}' is declared here", t.name));
    return false;
  }
  if (first) writer = {static_cast<int64_t>(index_of_op), loc};
  if (std::find(op.out.begin(), op.out.end(), id) != op.out.end()) {
    c.error(loc, fmt::format("'{}' is written twice by this op", t.name));
    return false;
  }
  if (t.kind == TensorKind::State || first) return true;
  if (c.error(loc,
              fmt::format("{} '{}' is written twice, but exactly one op may write it",
                          t.kind == TensorKind::Output ? "output" : "temporary", t.name),
              hint))
    c.note(writer.loc, "it is written here first");
  return false;
}

void check_written(Check& c) {
  for (size_t i = 0; i < c.graph.tensors.size(); ++i) {
    const ir::Tensor& t = c.graph.tensors[i];
    if (c.writer(ir::id_of<ir::TensorId>(i)).op >= 0) continue;
    if (t.kind == TensorKind::Output || t.kind == TensorKind::Temp)
      c.error(t.loc, fmt::format("no op writes {} '{}'",
                                 t.kind == TensorKind::Output ? "output" : "temporary", t.name));
  }
}

bool check_ids(Check& c) {
  bool good = true;
  for (const ir::Op& op : c.graph.ops)
    for (const auto* ids : {&op.in, &op.out})
      for (const ir::TensorId id : *ids) {
        if (index(id) < c.graph.tensors.size()) continue;
        c.error(op.loc,
                fmt::format("'{}' has tensor {} as an {}, but the graph has {} tensors", op.kind,
                            index(id), ids == &op.in ? "input" : "output", c.graph.tensors.size()));
        good = false;
      }
  if (c.graph.ops.size() > static_cast<size_t>(kMaxOps)) {
    c.error(c.graph.loc,
            fmt::format("the graph has {} ops, more than {}", c.graph.ops.size(), kMaxOps));
    good = false;
  }
  return good;
}

void check_ops(Check& c) {
  const ir::Graph& g = c.graph;
  std::vector<Writer> writers(g.tensors.size());
  for (size_t i = 0; i < g.ops.size(); ++i)
    for (const ir::TensorId id : g.ops[i].out)
      if (writers[index(id)].op < 0)
        writers[index(id)] = {static_cast<int64_t>(i), out_loc(g.ops[i])};
  for (size_t i = 0; i < g.ops.size(); ++i) {
    const ir::Op& op = g.ops[i];
    give_name(c, c.ops, "ops", op.name, op.loc);
    check_op(c, op);
    check_inputs(c, i, writers);
    check_outputs(c, i);
  }
  check_written(c);
}

}  // namespace maco::graph
