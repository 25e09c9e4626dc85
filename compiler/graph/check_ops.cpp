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

struct Counted {
  const char* verb;  // "takes"
  const char* what;  // "input"
  int lo, hi;        // hi -1: any number
};
void check_count(Check& c, const ir::Op& op, size_t count, const Counted& rule) {
  const auto n = static_cast<int>(std::min<size_t>(count, INT32_MAX));
  if (n < rule.lo || (rule.hi >= 0 && n > rule.hi))
    c.error(op.loc, fmt::format("'{}' {} {}, found {}", op.kind, rule.verb,
                                count_text(rule.lo, rule.hi, rule.what), n));
}

const ops::OpDef* check_kind(Check& c, const ir::Op& op) {
  const ops::OpDef* def = ops::find_op(op.kind);
  if (def && (!def->internal || c.options.internal_ops)) return def;
  c.error(op.loc, fmt::format("unknown op '{}'{}", op.kind, ops::near_op(op.kind)));
  return nullptr;
}

/// The first op that writes each tensor, or -1.
using Writers = std::vector<int64_t>;

void check_inputs(Check& c, size_t index_of_op, const Writers& written, const Writers& writers) {
  const ir::Op& op = c.graph.ops[index_of_op];
  for (size_t k = 0; k < op.in.size(); ++k) {
    const ir::Tensor& t = c.graph[op.in[k]];
    const ir::Loc loc = k < op.in_loc.size() ? op.in_loc[k] : op.loc;
    const size_t id = index(op.in[k]);
    if (t.kind == TensorKind::Scalar) {
      if (c.error(loc, fmt::format("'{}' is a scalar, but '{}' reads tensors; scalars stand in "
                                   "run-time attributes",
                                   t.name, op.kind)))
        c.report.note(t.loc, fmt::format("'{}' is declared here", t.name));
      continue;
    }
    if ((t.kind != TensorKind::Temp && t.kind != TensorKind::Output) || written[id] >= 0) continue;
    if (writers[id] < 0)
      c.error(loc, fmt::format("'{}' is not defined", t.name));
    else if (writers[id] == static_cast<int64_t>(index_of_op))
      c.error(loc, fmt::format("'{}' is read by the op that defines it", t.name));
    else if (c.error(loc, fmt::format("'{}' is read before it is defined", t.name)))
      c.report.note(c.graph.ops[static_cast<size_t>(writers[id])].loc,
                    fmt::format("'{}' is defined here", t.name));
  }
}

void check_outputs(Check& c, size_t index_of_op, Writers& written) {
  const ir::Op& op = c.graph.ops[index_of_op];
  const ir::Loc loc = op.out_loc.known() ? op.out_loc : op.loc;
  for (size_t k = 0; k < op.out.size(); ++k) {
    const ir::Tensor& t = c.graph[op.out[k]];
    int64_t& writer = written[index(op.out[k])];
    const auto begin = op.out.begin(), end = begin + static_cast<std::ptrdiff_t>(k);
    if (t.kind == TensorKind::Input || t.kind == TensorKind::Param ||
        t.kind == TensorKind::Scalar) {
      if (c.error(loc, fmt::format("'{}' is {} {}, which the graph only reads", t.name,
                                   t.kind == TensorKind::Input ? "an" : "a", ir::name(t.kind))))
        c.report.note(t.loc, fmt::format("'{}' is declared here", t.name));
    } else if (std::find(begin, end, op.out[k]) != end) {
      c.error(loc, fmt::format("'{}' is written twice by this op", t.name));
    } else if (t.kind != TensorKind::State && writer >= 0) {
      if (c.error(loc, fmt::format("{} '{}' is written twice, but exactly one op may write it",
                                   t.kind == TensorKind::Output ? "output" : "temporary", t.name)))
        c.report.note(c.graph.ops[static_cast<size_t>(writer)].loc, "it is written here first");
    }
    if (writer < 0) writer = static_cast<int64_t>(index_of_op);
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
  const ops::OpDef* def = check_kind(c, op);
  if (!def) return;
  check_count(c, op, op.in.size(), {"takes", "input", def->min_in, ops::most_inputs(*def, op)});
  check_count(c, op, op.out.size(), {"gives", "output", def->min_out, ops::most_outputs(*def, op)});
  check_attrs(c, op);
}

}  // namespace

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
  Writers writers(g.tensors.size(), -1), written = writers;
  for (size_t i = 0; i < g.ops.size(); ++i)
    for (const ir::TensorId id : g.ops[i].out)
      if (writers[index(id)] < 0) writers[index(id)] = static_cast<int64_t>(i);
  for (size_t i = 0; i < g.ops.size(); ++i) {
    const ir::Op& op = g.ops[i];
    const auto [other, fresh] = c.op_of.emplace(op.name, i);
    if (!fresh && c.error(op.loc, fmt::format("two ops are called '{}'", op.name)))
      c.report.note(g.ops[other->second].loc, "the first is here");
    check_op(c, op);
    check_inputs(c, i, written, writers);
    check_outputs(c, i, written);
  }
  for (size_t t = 0; t < g.tensors.size(); ++t) {
    const TensorKind kind = g.tensors[t].kind;
    if (writers[t] < 0 && (kind == TensorKind::Output || kind == TensorKind::Temp))
      c.error(g.tensors[t].loc,
              fmt::format("no op writes {} '{}'",
                          kind == TensorKind::Output ? "output" : "temporary", g.tensors[t].name));
  }
}

}  // namespace maco::graph
