// random_graph.cpp: the ops of a random graph, one after the other, and its text.
#include "tests/fuzz/random_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tests/fuzz/random_maker.h"

namespace maco::fuzz {

namespace {

const std::vector<std::string> kBinary = {"add", "sub", "mul", "maximum", "minimum"};
const std::vector<std::string> kComparisons = {"eq", "ne", "lt", "le", "gt", "ge"};
const std::vector<std::string> kUnary = {"relu", "silu", "gelu", "sigmoid", "tanh", "exp",
                                         "sin",  "cos",  "erf",  "neg",     "abs"};
const std::vector<std::string> kOfPositive = {"log", "sqrt", "rsqrt", "div", "pow"};

}  // namespace

RandomGraph Maker::make() {
  choose_sizes();
  std::vector<std::string> steps = g_.plan.forced;
  while (steps.size() < 8) steps.push_back(glue());
  for (int64_t more = r_.range(0, 2); more > 0; --more) steps.push_back(glue());
  r_.shuffle(steps);
  for (const std::string& feature : steps) step(feature);
  settings();
  launches();
  for (const OpText& op : g_.ops)
    for (const std::string& out : op.out)
      if (!op.changes_state && r_.chance(15)) g_.outputs_anyway.push_back(out);
  return std::move(g_);
}

std::string Maker::glue() {
  static const std::vector<std::string> common = {
      "matmul", "matmul", "add", "add", "mul", "rmsnorm", "layernorm", "silu", "swiglu", "softmax"};
  if (r_.chance(world_ > 1 ? 20 : 8)) return some_collective();
  if (r_.chance(50)) return r_.pick(common);
  return r_.pick(features());
}

void Maker::step(const std::string& f) {
  const bool forced = contains(g_.plan.forced, f);
  DType t = forced ? g_.plan.dtype : some_dtype();
  if (!takes(f, t)) t = some_float();
  if (!takes(f, t)) t = DType::F32;
  needs_dims_ = forced && !dims_.empty();
  if (f == "matmul")
    matmul(t);
  else if (contains(kBinary, f))
    binary(f, t);
  else if (contains(kUnary, f))
    unary(f, t);
  else if (contains(kOfPositive, f))
    of_positive(f, t);
  else if (contains(kComparisons, f))
    comparison(f, t);
  else if (f == "where")
    where(t);
  else if (f == "clamp")
    clamp(t);
  else if (f == "swiglu" || f == "geglu")
    gated(f, t);
  else if (f == "rmsnorm" || f == "layernorm")
    norm(f, t);
  else if (f == "softmax")
    softmax(t);
  else if (f == "rope")
    rope(t);
  else if (f == "attention")
    attention(t);
  else if (f == "kv_append")
    kv_append(t);
  else if (f == "embedding")
    embedding(t);
  else if (f == "argmax")
    argmax(t);
  else if (f == "sum" || f == "mean" || f == "max")
    reduction(f, t);
  else if (f == "cast")
    cast(t);
  else if (f == "copy")
    copy(t);
  else if (f == "reshape")
    reshape(t);
  else if (f == "transpose")
    transpose(t);
  else if (f == "slice")
    slice(t);
  else if (f == "concat")
    concat(t);
  else if (f == "split")
    split(t);
  else if (f == "barrier") {
    emit(f, {}, {}, {}, 0);
    g_.ops.back().name = fresh("b");
  } else if (f == "send" || f == "recv")
    message(f, t);
  else
    collective(f, t);
  if (r_.chance(3)) accumulate();
}

std::string RandomGraph::text(const std::vector<bool>& kept, RolesKind roles,
                              bool with_settings) const {
  std::set<std::string> used, read, defined;
  const auto words = [&](const std::string& attr) {
    std::string word;
    for (char c : attr + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
        word += c;
      else
        used.insert(std::exchange(word, ""));
    }
  };
  std::set<std::string> names;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!kept[i]) continue;
    read.insert(ops[i].in.begin(), ops[i].in.end());
    used.insert(ops[i].in.begin(), ops[i].in.end());
    for (const std::string& a : ops[i].attrs) words(a);
    names.insert(ops[i].name.empty() ? ops[i].out[0] : ops[i].name);
  }
  // Dims stand in shapes and are declared always: launches give them values.
  std::string s = fmt::format("graph random_{}(world = {}) {{\n", seed, plan.world);
  for (const auto& [name, statement] : declarations)
    if (used.count(name) || statement.rfind("dim ", 0) == 0 || statement.rfind("scalar ", 0) == 0)
      s += "  " + statement + "\n";
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!kept[i]) continue;
    const OpText& op = ops[i];
    bool output = !op.type.empty();
    if (!op.changes_state)
      for (const std::string& out : op.out)
        output =
            output || !read.count(out) ||
            std::find(outputs_anyway.begin(), outputs_anyway.end(), out) != outputs_anyway.end();
    std::vector<std::string> arguments;
    if (!op.no_operands) arguments = op.in;
    for (const std::string& a : op.attrs) {
      const bool setting =
          a.rfind("priority", 0) == 0 || a.rfind("overlap", 0) == 0 || a.rfind("phase", 0) == 0;
      if (with_settings || !setting) arguments.push_back(a);
    }
    std::vector<std::string> later;
    for (const std::string& a : op.after)
      if (names.count(a) && with_settings) later.push_back(a);
    if (!later.empty()) arguments.push_back(fmt::format("after = [{}]", fmt::join(later, ", ")));
    if (!op.first.empty()) s += fmt::format("  {}\n", op.first);
    s += fmt::format("  {}{}{}{}{}({}){}\n", output ? "output " : "", fmt::join(op.out, ", "),
                     op.type.empty() ? "" : " : " + op.type, op.out.empty() ? "" : " = ", op.kind,
                     fmt::join(arguments, ", "), op.name.empty() ? "" : " @" + op.name);
    if (!op.last.empty()) s += fmt::format("  {}\n", op.last);
  }
  if (const std::string& statement = roles_statements[static_cast<size_t>(roles)];
      !statement.empty())
    s += "  " + statement + "\n";
  if (with_settings) {
    for (const std::string& statement : set_statements) s += "  " + statement + "\n";
    for (const auto& [name, members] : regions) {
      std::vector<std::string> here;
      for (const std::string& m : members)
        if (names.count(m)) here.push_back(m);
      if (!here.empty()) s += fmt::format("  region {} = [{}]\n", name, fmt::join(here, ", "));
    }
  }
  return s + "}\n";
}

RandomGraph random_graph(uint64_t seed) { return Maker(seed).make(); }

}  // namespace maco::fuzz
