#include "ir/to_raw.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/check.h"

namespace maco::ir {

namespace {

Raw boolean(bool value) {
  Raw raw;
  raw.kind = Raw::Kind::Bool;
  raw.boolean = value;
  return raw;
}

Raw integer(int64_t value) {
  Raw raw;
  raw.kind = Raw::Kind::Int;
  raw.integer = value;
  return raw;
}

Raw number(double value) {
  MACO_CHECK(std::isfinite(value), "a graph's numbers are finite");
  Raw raw;
  raw.kind = Raw::Kind::Float;
  raw.number = value;
  return raw;
}

Raw word(std::string_view text) {
  Raw raw;
  raw.kind = Raw::Kind::String;
  raw.text = text;
  return raw;
}

Raw quoted(std::string_view text) {
  Raw raw = word(text);
  raw.text_column_shift = 1;
  return raw;
}

Raw expression(const Expr& e) {
  if (auto value = e.constant()) return integer(*value);
  return word(e.str());
}

template <class Items, class F>
Raw list(const Items& items, F&& f) {
  Raw raw;
  raw.kind = Raw::Kind::List;
  for (const auto& item : items) raw.list.push_back(f(item));
  return raw;
}

Raw names(const std::vector<std::string>& items) { return list(items, word); }

Raw map() {
  Raw raw;
  raw.kind = Raw::Kind::Map;
  raw.map.reserve(kUsualKeys);
  return raw;
}

void add(Raw& raw, std::string key, Raw value) {
  raw.map.push_back({std::move(key), {}, std::move(value)});
}

Raw to_raw(const Dim& dim) {
  Raw raw = map();
  add(raw, "max", integer(dim.max));
  if (dim.min != 1) add(raw, "min", integer(dim.min));
  if (dim.typical) add(raw, "typical", integer(*dim.typical));
  return raw;
}

Raw to_raw(const AttrTree& tree) {
  struct Visitor {
    Raw operator()(const Expr& v) { return expression(v); }
    Raw operator()(double v) { return number(v); }
    Raw operator()(const std::string& v) { return quoted(v); }
    Raw operator()(const AttrTree::List& v) {
      return list(v, [](const AttrTree& item) { return to_raw(item); });
    }
    Raw operator()(const AttrTree::Map& v) {
      Raw raw = map();
      for (const AttrTree::Entry& e : v) add(raw, e.key, to_raw(e.value));
      return raw;
    }
  };
  return std::visit(Visitor(), tree.value);
}

Raw to_raw(const AttrValue& value) {
  struct Visitor {
    Raw operator()(bool v) { return boolean(v); }
    Raw operator()(const Expr& v) { return expression(v); }
    Raw operator()(double v) { return number(v); }
    // Words have no quotes in the DSL; any other string (the body of a fused op) is quoted.
    Raw operator()(const std::string& v) { return is_identifier(v) ? word(v) : quoted(v); }
    Raw operator()(const std::vector<Expr>& v) { return list(v, expression); }
    Raw operator()(const std::map<std::string, double>& v) {
      Raw raw = map();
      for (const auto& [key, item] : v) add(raw, key, number(item));
      return raw;
    }
    Raw operator()(const AttrTree& v) { return to_raw(v); }
  };
  return std::visit(Visitor(), value);
}

Raw to_raw(const RoleRange& range) {
  Raw raw = map();
  add(raw, "sms", list(std::vector{range.begin, range.end}, integer));
  add(raw, "role", word(range.role));
  if (!range.tasks.empty()) add(raw, "tasks", names(range.tasks));
  return raw;
}

Raw to_raw(const Roles& roles) {
  if (const auto* ranges = std::get_if<std::vector<RoleRange>>(&roles))
    return list(*ranges, [](const RoleRange& range) { return to_raw(range); });
  const auto* counts = std::get_if<RoleCounts>(&roles);
  if (counts == nullptr) return word("auto");
  Raw raw = map();
  if (counts->compute) add(raw, "compute", integer(*counts->compute));
  if (counts->comm) add(raw, "comm", integer(*counts->comm));
  if (counts->scheduler) add(raw, "scheduler", integer(*counts->scheduler));
  return raw;
}

Raw to_raw(const SmRoles& sm_roles) {
  if (const auto* roles = std::get_if<Roles>(&sm_roles.value)) return to_raw(*roles);
  Raw raw = map();
  add(raw, "when",
      list(std::get<std::vector<RoleVariant>>(sm_roles.value), [](const RoleVariant& v) {
        Raw variant = map();
        if (v.condition) add(variant, "if", expression(*v.condition));
        add(variant, v.condition ? "roles" : "else", to_raw(v.roles));
        return variant;
      }));
  return raw;
}

Raw to_raw(const OverlapRegion& region) {
  Raw raw = map();
  add(raw, "name", word(region.name));
  add(raw, "ops", names(region.ops));
  return raw;
}

Raw to_raw(const Phase& phase) {
  Raw raw = map();
  add(raw, "name", word(phase.name));
  if (!phase.depends_on.empty()) add(raw, "depends_on", names(phase.depends_on));
  return raw;
}

Raw to_raw(const ChunkOp& op) {
  Raw raw = map();
  const auto chunks = [](const ChunkRange& r) { return word(print_chunks(r)); };
  add(raw, "op", word(op.kind));
  if (!op.from.empty()) add(raw, "in", list(op.from, chunks));
  if (op.to.size() == 1) add(raw, "out", chunks(op.to[0]));
  if (op.to.size() > 1) add(raw, "out", list(op.to, chunks));
  const auto given = [&](const char* key, const std::optional<Expr>& e) {
    if (e) add(raw, key, expression(*e));
  };
  given(op.kind == "signal" ? "to" : "from", op.peer);
  given("tag", op.tag);
  given("semaphore", op.semaphore);
  if (op.blocks) add(raw, "blocks", list(*op.blocks, expression));
  given("block", op.block);
  if (op.packets) add(raw, "packets", boolean(true));
  if (op.relaxed) add(raw, "relaxed", boolean(true));
  given("unit", op.unit);
  given("if", op.condition);
  return raw;
}

Raw to_raw(const UserAlgorithm& algorithm) {
  Raw raw = map();
  add(raw, "name", word(algorithm.name));
  add(raw, "of", word(algorithm.of));
  if (algorithm.world) add(raw, "world", expression(*algorithm.world));
  add(raw, "chunks", expression(algorithm.chunks));
  if (algorithm.scratch != Expr(0)) add(raw, "scratch", expression(algorithm.scratch));
  if (algorithm.in_place) add(raw, "in_place", boolean(true));
  if (!algorithm.semaphores.empty()) add(raw, "semaphores", list(algorithm.semaphores, expression));
  add(raw, "ops", list(algorithm.ops, [](const ChunkOp& op) { return to_raw(op); }));
  return raw;
}

Raw to_raw(const Pipeline& pipeline) {
  Raw raw = map();
  add(raw, "stages", list(pipeline.stages, names));
  add(raw, "microbatches", integer(pipeline.microbatches));
  return raw;
}

}  // namespace

std::string print_chunks(const ChunkRange& r) {
  std::string text = r.buffer + "[" + r.begin.str();
  if (r.end) text += ":" + r.end->str();
  text += "]";
  // The rank's expression would end at a comparison.
  if (r.rank)
    text += " @ " + (r.rank->nodes().size() == 1 ? r.rank->str() : "(" + r.rank->str() + ")");
  return text;
}

Raw to_raw(const Tensor& tensor) {
  Raw raw = map();
  add(raw, "kind", word(name(tensor.kind)));
  if (tensor.kind == TensorKind::Scalar) {
    add(raw, "range", list(std::vector{tensor.range_lo, tensor.range_hi}, integer));
    if (tensor.typical) add(raw, "typical", integer(*tensor.typical));
    return raw;
  }
  add(raw, "dtype", word(name(tensor.dtype)));
  add(raw, "shape", list(tensor.shape, expression));
  return raw;
}

Raw to_raw(const Graph& graph, const Op& op) {
  auto operand = [&](TensorId id) { return word(graph[id].name); };
  Raw raw = map();
  add(raw, "op", word(op.kind));
  if (!op.in.empty()) add(raw, "in", list(op.in, operand));
  if (op.out.size() == 1) add(raw, "out", operand(op.out[0]));
  if (op.out.size() > 1) add(raw, "out", list(op.out, operand));
  for (const auto& [key, attr] : op.attrs) add(raw, key, to_raw(attr.value));
  if (op.named) add(raw, "name", word(op.name));
  if (op.dtype) add(raw, "dtype", word(name(*op.dtype)));
  if (!op.after.empty()) add(raw, "after", names(op.after));
  if (op.phase) add(raw, "phase", quoted(*op.phase));
  if (op.overlap) add(raw, "overlap", word(name(*op.overlap)));
  if (op.overlap_group) add(raw, "overlap_group", quoted(*op.overlap_group));
  if (op.priority != Priority::Normal) add(raw, "priority", word(name(op.priority)));
  return raw;
}

Raw to_raw(const Graph& graph, Parts parts) {
  Raw root = map();
  add(root, "maco", integer(1));
  add(root, "name", word(graph.name));
  add(root, "world", integer(graph.world));
  if (!graph.dims.empty()) {
    Raw dims = map();
    for (const Dim& dim : graph.dims) add(dims, dim.name, to_raw(dim));
    add(root, "dims", std::move(dims));
  }
  if (parts == Parts::All) {
    Raw tensors = map();
    for (const Tensor& tensor : graph.tensors)
      if (tensor.kind != TensorKind::Temp) add(tensors, tensor.name, to_raw(tensor));
    add(root, "tensors", std::move(tensors));
    add(root, "ops", list(graph.ops, [&](const Op& op) { return to_raw(graph, op); }));
  }

  if (graph.sm_roles != SmRoles()) add(root, "sm_roles", to_raw(graph.sm_roles));
  if (graph.schedule != Schedule::Static) add(root, "schedule", word(name(graph.schedule)));
  if (graph.overlap != Overlap::Aggressive) add(root, "overlap", word(name(graph.overlap)));
  if (!graph.overlap_regions.empty())
    add(root, "overlap_regions",
        list(graph.overlap_regions, [](const OverlapRegion& r) { return to_raw(r); }));
  if (!graph.phases.empty())
    add(root, "phases", list(graph.phases, [](const Phase& p) { return to_raw(p); }));
  if (graph.pipeline) add(root, "pipeline", to_raw(*graph.pipeline));
  if (graph.backend != Backend::P2P) add(root, "backend", word(name(graph.backend)));
  if (!graph.cuda_units.empty()) {
    Raw units = map();
    for (const CudaUnit& unit : graph.cuda_units) {
      Raw texts = map();
      add(texts, "original", quoted(unit.original));
      add(texts, "device", quoted(unit.device));
      add(units, unit.name, std::move(texts));
    }
    add(root, "cuda_units", std::move(units));
  }
  if (!graph.algorithms.empty())
    add(root, "collectives",
        list(graph.algorithms, [](const UserAlgorithm& a) { return to_raw(a); }));
  if (graph.comm_buffer_bytes) add(root, "comm_buffer_bytes", integer(*graph.comm_buffer_bytes));
  return root;
}

std::string print_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string print_quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace maco::ir
