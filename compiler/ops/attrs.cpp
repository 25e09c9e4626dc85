#include "compiler/ops/attrs.h"

#include <cmath>

#include "compiler/ops/op.h"
#include "ir/check.h"

namespace maco::ops {

namespace {
const ir::AttrValue* find(const ir::Op& op, const std::string& attr) {
  auto it = op.attrs.find(attr);
  return it == op.attrs.end() ? nullptr : &it->second.value;
}
ir::Expr with_world(const ir::Graph& graph, const ir::Expr& e) {
  return ir::substitute(e, [&](std::string_view n) -> std::optional<int64_t> {
    if (n == "world") return graph.world;
    return std::nullopt;
  });
}
}  // namespace

std::optional<ir::Expr> attr_expr(const ir::Graph& graph, const ir::Op& op,
                                  const std::string& attr) {
  const ir::AttrValue* v = find(op, attr);
  if (!v) return std::nullopt;
  const auto* e = std::get_if<ir::Expr>(v);
  MACO_CHECK(e, attr);
  return with_world(graph, *e);
}

std::vector<ir::Expr> attr_list(const ir::Graph& graph, const ir::Op& op, const std::string& attr) {
  const ir::AttrValue* v = find(op, attr);
  std::vector<ir::Expr> out;
  if (!v) return out;
  const auto* list = std::get_if<std::vector<ir::Expr>>(v);
  MACO_CHECK(list, attr);
  for (const ir::Expr& e : *list) out.push_back(with_world(graph, e));
  return out;
}

double attr_number(const ir::Op& op, const std::string& attr, double default_value) {
  const ir::AttrValue* v = find(op, attr);
  if (!v) return default_value;
  if (const auto* d = std::get_if<double>(v)) return *d;
  const auto* e = std::get_if<ir::Expr>(v);
  MACO_CHECK(e && e->constant(), attr);
  return static_cast<double>(*e->constant());
}

bool attr_flag(const ir::Op& op, const std::string& attr, bool default_value) {
  const ir::AttrValue* v = find(op, attr);
  if (!v) return default_value;
  const auto* b = std::get_if<bool>(v);
  MACO_CHECK(b, attr);
  return *b;
}

std::string attr_word(const ir::Op& op, const std::string& attr, const std::string& default_value) {
  const ir::AttrValue* v = find(op, attr);
  if (!v) return default_value;
  const auto* s = std::get_if<std::string>(v);
  MACO_CHECK(s, attr);
  return *s;
}

bool is_collective(const ir::Op& op) {
  const OpDef* def = find_op(op.kind);
  return (def && def->collective) || attr_flag(op, "collective", false);
}

bool runs_alone(const ir::Graph& graph, const ir::Op& op) {
  if (!is_collective(op)) return false;
  return find_op(op.kind)->barrier || op.overlap.value_or(graph.overlap) == ir::Overlap::None;
}

}  // namespace maco::ops
