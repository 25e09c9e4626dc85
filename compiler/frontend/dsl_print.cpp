// A graph as canonical DSL: declarations, settings, ops in their order, then what refers to ops.
// Outputs stand at the op that gives them, with their types.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/to_raw.h"
#include "ir/check.h"

namespace maco::frontend {

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
      // Something called 'true' would read back as a truth value.
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
  ir::internal_error(__FILE__, __LINE__, "a graph has no null values");
}

/// "bf16[64, 1024]"
std::string type_of(const Raw& tensor) {
  return tensor.find("dtype")->text + print(*tensor.find("shape"));
}

bool is_output(const Raw& tensor) { return tensor.find("kind")->text == "output"; }

/// The outputs of an op as a list, however they were written.
std::vector<std::string> outputs(const Raw& op) {
  std::vector<std::string> result;
  if (const Raw* out = op.find("out")) {
    if (out->kind == Raw::Kind::String) result.push_back(out->text);
    for (const Raw& item : out->list) result.push_back(item.text);
  }
  return result;
}

class Printer {
 public:
  explicit Printer(const Raw& root) : root_(root), tensors_(*root.find("tensors")) {
    for (const Raw& op : root.find("ops")->list)
      for (std::string& out : outputs(op)) written_.push_back(std::move(out));
    std::sort(written_.begin(), written_.end());
    for (const Raw::Entry& t : tensors_.map)
      if (is_output(t.value)) declared_outputs_.emplace(t.key, &t.value);
  }

  std::string run() {
    const int64_t world = root_.find("world")->integer;
    out_ = "graph " + root_.find("name")->text;
    if (world != 1) out_ += fmt::format("(world = {})", world);
    out_ += " {\n";
    declarations();
    settings();
    for (const Raw& op : root_.find("ops")->list) print_op(op);
    if (const Raw* regions = root_.find("overlap_regions"))
      for (const Raw& r : regions->list)
        line(fmt::format("region {} = {}", r.find("name")->text, print(*r.find("ops"))));
    if (const Raw* pipeline = root_.find("pipeline"))
      line(fmt::format("pipeline {} microbatches {}", print(*pipeline->find("stages")),
                       print(*pipeline->find("microbatches"))));
    return out_ + "}\n";
  }

 private:
  void line(std::string_view text) { out_.append("  ").append(text).append("\n"); }

  bool written(const std::string& name) const {
    return std::binary_search(written_.begin(), written_.end(), name);
  }

  void declarations() {
    if (const Raw* dims = root_.find("dims"))
      for (const Raw::Entry& dim : dims->map) {
        const Raw* min = dim.value.find("min");
        line(fmt::format("dim {}{} <= {}", min ? print(*min) + " <= " : "", dim.key,
                         print(*dim.value.find("max"))));
      }
    size_t width = 0;
    for (const Raw::Entry& t : tensors_.map)
      if (t.value.find("shape") && !is_output(t.value)) width = std::max(width, t.key.size());
    for (const Raw::Entry& t : tensors_.map) {
      const std::string& kind = t.value.find("kind")->text;
      if (const Raw* range = t.value.find("range"))
        line(fmt::format("scalar {} in [{})", t.key, print_items(range->list)));
      else if (!is_output(t.value) || !written(t.key))
        line(fmt::format("{:6} {:{}} : {}", kind, t.key, width, type_of(t.value)));
    }
  }

  /// Keys with statements of their own are left to those.
  void settings() {
    for (const Raw::Entry& e : root_.map) {
      if (e.key == "phases") {
        for (const Raw& phase : e.value.list) {
          const Raw* before = phase.find("depends_on");
          line("phase " + phase.find("name")->text +
               (before ? " depends_on " + names(*before) : ""));
        }
      } else if (e.key == "sm_roles" || e.key == "schedule" || e.key == "overlap" ||
                 e.key == "backend" || e.key == "comm_buffer_bytes") {
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

  /// "output y : bf16[64] = ", "l, r = ". An op that gives both outputs and others has its outputs
  /// declared before it.
  std::string results(const Raw& op) {
    const std::vector<std::string> outs = outputs(op);
    if (outs.empty()) return "";
    auto declared = [&](const std::string& name) { return declared_outputs_.count(name) > 0; };
    const bool all = std::all_of(outs.begin(), outs.end(), declared);
    std::string text = all ? "output " : "";
    for (size_t i = 0; i < outs.size(); ++i) {
      if (i > 0) text += ", ";
      text += outs[i];
      if (!declared(outs[i])) continue;
      const std::string type = type_of(*declared_outputs_.at(outs[i]));
      if (all)
        text += " : " + type;
      else
        line(fmt::format("output {} : {}", outs[i], type));
    }
    return text + " = ";
  }

  void print_op(const Raw& op) {
    std::string text = results(op) + op.find("op")->text + "(";
    std::string arguments, name;
    if (const Raw* in = op.find("in")) arguments = names(*in);
    for (const Raw::Entry& e : op.map) {
      if (e.key == "op" || e.key == "in" || e.key == "out") continue;
      if (e.key == "name")
        name = " @" + e.value.text;
      else
        arguments += (arguments.empty() ? "" : ", ") + e.key + " = " + print(e.value);
    }
    line(text + arguments + ")" + name);
  }

  const Raw& root_;
  const Raw& tensors_;
  std::vector<std::string> written_;  // outputs of ops, sorted
  std::map<std::string, const Raw*, std::less<>> declared_outputs_;
  std::string out_;
};

}  // namespace

std::string print_dsl(const ir::Graph& graph) { return Printer(to_raw(graph)).run(); }

}  // namespace maco::frontend
