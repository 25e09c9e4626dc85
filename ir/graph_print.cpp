// Prints a graph as canonical DSL: declarations, settings, ops in their order, then what refers to
// ops. Outputs are declared with their types at the op that gives them.
#include <fmt/format.h>

#include <algorithm>

#include "ir/check.h"
#include "ir/graph_text.h"
#include "ir/to_raw.h"

namespace maco::ir {

namespace {

std::string print(const Raw& value);

std::string print_items(const std::vector<Raw>& items) {
  std::string out;
  for (const Raw& item : items) out += (out.empty() ? "" : ", ") + print(item);
  return out;
}

std::string print(const Raw& value) {
  switch (value.kind) {
    case Raw::Kind::Bool: return value.boolean ? "true" : "false";
    case Raw::Kind::Int: return std::to_string(value.integer);
    case Raw::Kind::Float: return print_float(value.number);
    case Raw::Kind::String: {
      // A word 'true' would be read as a truth value.
      const bool bare =
          value.text_column_shift == 0 && value.text != "true" && value.text != "false";
      return bare ? value.text : print_quoted(value.text);
    }
    case Raw::Kind::List: return "[" + print_items(value.list) + "]";
    case Raw::Kind::Map: {
      std::string out;
      for (const Raw::Entry& e : value.map)
        out += (out.empty() ? "" : ", ") + e.key + ": " + print(e.value);
      return "{" + out + "}";
    }
    case Raw::Kind::Null: break;
  }
  internal_error(__FILE__, __LINE__, "a graph has no null values");
}

/// "bf16[64, 1024]"
std::string type_of(const Tensor& tensor) {
  const Raw raw = to_raw(tensor);
  return raw.find("dtype")->text + print(*raw.find("shape"));
}

bool is_output(const Tensor& tensor) { return tensor.kind == TensorKind::Output; }

class Printer {
 public:
  explicit Printer(const Graph& graph)
      : graph_(graph),
        root_(to_raw(graph, Parts::NoTensorsNorOps)),
        written_(graph.tensors.size(), false) {
    for (const Op& op : graph.ops)
      for (TensorId out : op.out) written_[index(out)] = true;
  }

  GraphText run() {
    const int64_t world = root_.find("world")->integer;
    if (const Raw* collectives = root_.find("collectives"))
      for (const Raw& c : collectives->list) collective(c);
    out_ += "graph " + root_.find("name")->text;
    if (world != 1) out_ += fmt::format("(world = {})", world);
    out_ += " {\n";
    declarations();
    settings();
    for (const Op& op : graph_.ops) print_op(op);
    if (const Raw* regions = root_.find("overlap_regions"))
      for (const Raw& r : regions->list)
        line(fmt::format("region {} = {}", r.find("name")->text, print(*r.find("ops"))));
    if (const Raw* pipeline = root_.find("pipeline"))
      line(fmt::format("pipeline {} microbatches {}", print(*pipeline->find("stages")),
                       print(*pipeline->find("microbatches"))));
    return {out_ + "}\n", std::move(lines_)};
  }

 private:
  void line(std::string_view text) { out_.append("  ").append(text).append("\n"); }

  /// "collective sum(of = allreduce, chunks = 4) { ... }"
  void collective(const Raw& c) {
    std::string keys;
    for (const Raw::Entry& e : c.map)
      if (e.key != "name" && e.key != "ops")
        keys += (keys.empty() ? "" : ", ") + e.key + " = " + print(e.value);
    out_ += "collective " + c.find("name")->text + "(" + keys + ") {\n";
    for (const Raw& op : c.find("ops")->list) {
      std::string text, arguments;
      if (const Raw* out = op.find("out"))
        text = (out->kind == Raw::Kind::List ? names(*out) : out->text) + " = ";
      if (const Raw* in = op.find("in")) arguments = names(*in);
      for (const Raw::Entry& e : op.map)
        if (e.key != "op" && e.key != "in" && e.key != "out")
          arguments += (arguments.empty() ? "" : ", ") + e.key + " = " + print(e.value);
      line(text + op.find("op")->text + "(" + arguments + ")");
    }
    out_ += "}\n";
  }

  void declarations() {
    if (const Raw* dims = root_.find("dims"))
      for (const Raw::Entry& dim : dims->map) {
        const Raw* min = dim.value.find("min");
        line(fmt::format("dim {}{} <= {}{}", min ? print(*min) + " <= " : "", dim.key,
                         print(*dim.value.find("max")), typical(dim.value)));
      }
    size_t width = 0;
    for (const Tensor& tensor : graph_.tensors)
      if (has_declaration(tensor) && tensor.kind != TensorKind::Scalar && !is_output(tensor))
        width = std::max(width, tensor.name.size());
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (!has_declaration(tensor)) continue;
      if (tensor.kind == TensorKind::Scalar)
        line(scalar(tensor));
      else if (!is_output(tensor) || !written_[t])
        line(
            fmt::format("{:6} {:{}} : {}", name(tensor.kind), tensor.name, width, type_of(tensor)));
    }
  }
  static bool has_declaration(const Tensor& tensor) { return tensor.kind != TensorKind::Temp; }

  static std::string typical(const Raw& declaration) {
    const Raw* value = declaration.find("typical");
    return value ? " typical " + print(*value) : "";
  }
  static std::string scalar(const Tensor& tensor) {
    const Raw raw = to_raw(tensor);
    return fmt::format("scalar {} in [{}){}", tensor.name, print_items(raw.find("range")->list),
                       typical(raw));
  }

  /// Prints settings, except keys that have statements of their own.
  void settings() {
    for (const Raw::Entry& e : root_.map) {
      if (e.key == "phases") {
        for (const Raw& phase : e.value.list) {
          const Raw* before = phase.find("depends_on");
          line("phase " + phase.find("name")->text +
               (before ? " depends_on " + names(*before) : ""));
        }
      } else if (e.key == "sm_roles" || e.key == "schedule" || e.key == "overlap" ||
                 e.key == "backend" || e.key == "comm_buffer_bytes" || e.key == "cuda_units") {
        line(fmt::format("set {} = {}", e.key, print(e.value)));
      }
    }
  }

  /// "a, b", where only names can stand.
  static std::string names(const Raw& list) {
    std::string out;
    for (const Raw& item : list.list) out += (out.empty() ? "" : ", ") + item.text;
    return out;
  }

  /// "output y : bf16[64] = ", "l, r = ". If an op gives both outputs and other tensors, its
  /// outputs are declared before it.
  std::string results(const Op& op) {
    if (op.out.empty()) return "";
    const auto declared = [&](TensorId out) { return is_output(graph_[out]); };
    const bool all = std::all_of(op.out.begin(), op.out.end(), declared);
    std::string text = all ? "output " : "";
    for (size_t i = 0; i < op.out.size(); ++i) {
      const Tensor& out = graph_[op.out[i]];
      if (i > 0) text += ", ";
      text += out.name;
      if (!is_output(out)) continue;
      if (all)
        text += " : " + type_of(out);
      else
        line(fmt::format("output {} : {}", out.name, type_of(out)));
    }
    return text + " = ";
  }

  /// Says that the next line is the op's.
  void note_line(const Op& op) {
    const auto begin = out_.begin() + static_cast<std::ptrdiff_t>(counted_);
    number_ += static_cast<size_t>(std::count(begin, out_.end(), '\n'));
    counted_ = out_.size();
    if (op.named) lines_.try_emplace(op.name, number_);
    for (const TensorId out : op.out) lines_.try_emplace(graph_[out].name, number_);
  }

  void print_op(const Op& op) {
    std::string text = results(op) + op.kind + "(";
    std::string arguments, name;
    const Raw raw = to_raw(graph_, op);
    if (const Raw* in = raw.find("in")) arguments = names(*in);
    for (const Raw::Entry& e : raw.map) {
      if (e.key == "op" || e.key == "in" || e.key == "out") continue;
      if (e.key == "name")
        name = " @" + e.value.text;
      else
        arguments += (arguments.empty() ? "" : ", ") + e.key + " = " + print(e.value);
    }
    note_line(op);
    line(text + arguments + ")" + name);
  }

  const Graph& graph_;
  const Raw root_;
  std::vector<bool> written_;  // by tensor: whether an op gives it
  std::string out_;
  std::map<std::string, size_t, std::less<>> lines_;  // as GraphText has them
  size_t number_ = 1, counted_ = 0;                   // of the line at byte `counted_` of out_
};

}  // namespace

std::string print(const Graph& graph) { return Printer(graph).run().text; }

GraphText print_with_lines(const Graph& graph) { return Printer(graph).run(); }

}  // namespace maco::ir
