#include "runtime/reference/op.h"

#include <fmt/format.h>

#include <cmath>

namespace maco::reference {

ir::EvalResult evaluate_on(const ir::Graph& graph, const Values& values, int rank,
                           const ir::Expr& e) {
  return ir::evaluate(e, [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "rank") return rank;
    if (name == "world") return graph.world;
    if (auto it = values.find(name); it != values.end()) return it->second;
    if (const ir::Dim* dim = graph.find_dim(name)) return dim->max;
    return std::nullopt;
  });
}

const ir::AttrValue* Call::find(const std::string& attr) const {
  auto it = op_.attrs.find(attr);
  return it == op_.attrs.end() ? nullptr : &it->second.value;
}

int64_t Call::evaluate(const ir::Expr& e) {
  const ir::EvalResult r = evaluate_on(graph_, values_, rank_, e);
  if (!r.value) fail(r.error);
  return r.value.value_or(0);
}

int64_t Call::integer(const std::string& attr, int64_t otherwise) {
  const ir::AttrValue* v = find(attr);
  if (!v) return otherwise;
  if (const bool* b = std::get_if<bool>(v)) return *b;
  if (const double* d = std::get_if<double>(v); d && *d == std::trunc(*d) && std::abs(*d) < 0x1p63)
    return static_cast<int64_t>(*d);
  const auto* e = std::get_if<ir::Expr>(v);
  if (!e) {
    fail(fmt::format("'{}' is not an integer", attr));
    return 0;
  }
  const ir::EvalResult r = evaluate_on(graph_, values_, rank_, *e);
  if (!r.value) fail(fmt::format("'{}': {}", attr, r.error));
  return r.value.value_or(0);
}

double Call::number(const std::string& attr, double otherwise) {
  const ir::AttrValue* v = find(attr);
  if (!v) return otherwise;
  if (const double* d = std::get_if<double>(v)) return *d;
  return static_cast<double>(integer(attr, 0));
}

bool Call::flag(const std::string& attr, bool otherwise) const {
  const ir::AttrValue* v = find(attr);
  const bool* b = v ? std::get_if<bool>(v) : nullptr;
  return b ? *b : otherwise;
}

std::string Call::word(const std::string& attr, const std::string& otherwise) const {
  const ir::AttrValue* v = find(attr);
  const std::string* s = v ? std::get_if<std::string>(v) : nullptr;
  return s ? *s : otherwise;
}

std::vector<int64_t> Call::list(const std::string& attr) {
  std::vector<int64_t> values;
  const ir::AttrValue* v = find(attr);
  const auto* exprs = v ? std::get_if<std::vector<ir::Expr>>(v) : nullptr;
  if (!exprs) return values;
  for (const ir::Expr& e : *exprs) {
    const ir::EvalResult r = evaluate_on(graph_, values_, rank_, e);
    if (!r.value) fail(fmt::format("'{}': {}", attr, r.error));
    values.push_back(r.value.value_or(0));
  }
  return values;
}

double Call::field(const std::string& attr, const std::string& name, double otherwise) const {
  const ir::AttrValue* v = find(attr);
  const auto* map = v ? std::get_if<std::map<std::string, double>>(v) : nullptr;
  if (!map) return otherwise;
  auto it = map->find(name);
  return it == map->end() ? otherwise : it->second;
}

void Call::fail(const std::string& why) {
  if (status_.ok)
    status_ =
        Status::failure(fmt::format("{} '{}' on rank {}: {}", op_.kind, op_.name, rank_, why));
}

void Call::bad_index(int64_t index, int64_t limit, int64_t at) {
  fail(fmt::format("index {} (element {} of '{}') is not in [0, {})", index, at,
                   graph_[op_.in.back()].name, limit));
}

}  // namespace maco::reference
