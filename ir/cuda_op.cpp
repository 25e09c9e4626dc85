#include "ir/cuda_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "ir/check.h"

namespace maco::ir {

namespace {

using List = AttrTree::List;
using Map = AttrTree::Map;

class Reader {
 public:
  Reader(const Graph& graph, const Op& op, const std::function<void(Loc, std::string)>& error)
      : graph_(graph), op_(op), report_(error) {}

  std::optional<CudaOp> run() {
    out_.source = word("source");
    out_.kernel = word("kernel");
    if (out_.source.empty()) error(op_.loc, "'source' of 'cuda' is empty");
    if (!is_qualified_name(out_.kernel))
      error(loc_of("kernel"),
            fmt::format("'kernel' of 'cuda' must be the name of a kernel, found '{}'",
                        out_.kernel.substr(0, 40)));
    options();
    if (const AttrTree* t = tree("template")) template_args(*t);
    if (const AttrTree* t = tree("grid")) grid(*t);
    if (const AttrTree* t = tree("block")) block(*t);
    if (const auto found = op_.attrs.find("shared"); found != op_.attrs.end())
      shared(found->second);
    if (const AttrTree* t = tree("args")) args(*t);
    for (const bool writes : {false, true})
      if (const AttrTree* t = tree(writes ? "writes" : "reads"))
        regions(*t, writes, writes ? out_.writes : out_.reads);
    if (wrong_) return std::nullopt;
    return std::move(out_);
  }

 private:
  void error(Loc loc, std::string message) {
    wrong_ = true;
    report_(loc.known() ? loc : op_.loc, std::move(message));
  }
  // "k", "ns::k"
  static bool is_qualified_name(std::string_view text) {
    bool begins = true;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c == ':' && !begins && text.substr(i, 2) == "::") {
        ++i;
        begins = true;
      } else if (c == '_' || std::isalpha(c) || (!begins && std::isdigit(c))) {
        begins = false;
      } else {
        return false;
      }
    }
    return !begins;
  }
  Loc loc_of(const std::string& attr) const {
    const auto found = op_.attrs.find(attr);
    return found == op_.attrs.end() ? op_.loc : found->second.loc;
  }
  std::string word(const std::string& attr) const {
    const auto found = op_.attrs.find(attr);
    if (found == op_.attrs.end()) return "";
    const auto* text = std::get_if<std::string>(&found->second.value);
    return text ? *text : "";
  }
  const AttrTree* tree(const std::string& attr) const {
    const auto found = op_.attrs.find(attr);
    return found == op_.attrs.end() ? nullptr : std::get_if<AttrTree>(&found->second.value);
  }
  Expr fold(const Expr& e) const {
    return substitute(e, [&](std::string_view name) -> std::optional<int64_t> {
      if (name == "world") return graph_.world;
      return std::nullopt;
    });
  }

  /// An expression over the names that a grid may use and, with `in_block`, the block's place.
  std::optional<Expr> expression(const AttrTree& t, const std::string& what, bool in_block) {
    const Expr* e = std::get_if<Expr>(&t.value);
    if (!e) {
      error(t.loc, fmt::format("{} must be an integer or an expression", what));
      return std::nullopt;
    }
    for (const std::string& name : e->vars()) {
      const bool place = name == "bx" || name == "by" || name == "bz";
      if (graph_.range_of(name) || (in_block && place)) continue;
      if (graph_.find_tensor(name)) {
        error(t.loc, fmt::format("'{}' is a tensor and can't stand in {}", name, what));
      } else {
        std::vector<std::string> names = {"rank", "world"};
        if (in_block) names.insert(names.end(), {"bx", "by", "bz"});
        for (const Dim& d : graph_.dims) names.push_back(d.name);
        for (const Tensor& s : graph_.tensors)
          if (s.kind == TensorKind::Scalar) names.push_back(s.name);
        const std::string hint = did_you_mean(name, names);
        error(t.loc,
              fmt::format(
                  "unknown name '{}' in {}{}", name, what,
                  hint.empty() ? fmt::format("; it may use {}", fmt::join(names, ", ")) : hint));
      }
      return std::nullopt;
    }
    return fold(*e);
  }

  void template_args(const AttrTree& t) {
    const List* list = std::get_if<List>(&t.value);
    if (!list) return error(t.loc, "'template' of 'cuda' must be a list of types and numbers");
    for (const AttrTree& arg : *list) {
      const Expr* e = std::get_if<Expr>(&arg.value);
      // Template arguments become code; they may hold nothing that would end it.
      const bool leaf =
          e || (std::holds_alternative<std::string>(arg.value) && !arg.text().empty() &&
                arg.text().find_first_of(";{}#\\\"'\n\r") == std::string::npos);
      if (leaf)
        out_.template_args.push_back(e ? fold(*e).str() : arg.text());
      else
        error(arg.loc, "an entry of 'template' of 'cuda' must be a type or an integer");
    }
  }

  /// Reads options as on a compiler's command line: "-I../common -D TILE=16".
  void options() {
    const auto words = split_options(word("options"));
    if (!words) {
      error(loc_of("options"), "a quote in 'options' of 'cuda' has no end");
      return;
    }
    std::vector<std::string>* awaited = nullptr;  // "-I" stood alone
    for (const std::string& text : *words) {
      if (awaited) {
        awaited->push_back(text);
        awaited = nullptr;
        continue;
      }
      const std::string_view option = std::string_view(text).substr(0, 2);
      if (option != "-I" && option != "-D") {
        error(loc_of("options"),
              fmt::format("'options' of 'cuda' takes -I and -D, found '{}'", text));
        return;
      }
      std::vector<std::string>& list = option == "-I" ? out_.include_folders : out_.defines;
      if (text.size() == 2)
        awaited = &list;
      else
        list.push_back(text.substr(2));
    }
    if (awaited)
      error(loc_of("options"), fmt::format("'options' of 'cuda' ends with {}",
                                           awaited == &out_.defines ? "-D" : "-I"));
    for (const std::string& macro : out_.defines)
      if (macro_name(macro).empty())
        error(
            loc_of("options"),
            fmt::format("-D in 'options' of 'cuda' must be NAME or NAME=VALUE, found '{}'", macro));
  }

  void grid(const AttrTree& t) {
    const List* list = std::get_if<List>(&t.value);
    if (!list || list->empty() || list->size() > 3)
      return error(t.loc, fmt::format("'grid' of 'cuda' must be a list of 1 to 3 extents{}",
                                      list ? fmt::format(", found {}", list->size()) : ""));
    out_.grid.fill(Expr(1));
    for (size_t i = 0; i < list->size(); ++i) {
      const auto e = expression((*list)[i], fmt::format("entry {} of 'grid'", i), false);
      if (!e) continue;
      out_.grid[i] = canonical(*e);
      const auto range =
          bounds(out_.grid[i], [&](std::string_view n) { return graph_.range_of(n); });
      if (!range)
        error((*list)[i].loc,
              fmt::format("entry {} of 'grid' of 'cuda', '{}', has no value in some "
                          "launch",
                          i, e->str()));
      else if (range->lo < 0 || range->hi < 1)
        error((*list)[i].loc,
              fmt::format("entry {} of 'grid' of 'cuda' may be {}, but there is at least one block",
                          i, std::min(range->lo, range->hi)));
      else if (range->hi > kMostCudaGrid[i])
        error((*list)[i].loc, fmt::format("entry {} of 'grid' of 'cuda' may be {}, more than {}", i,
                                          range->hi, kMostCudaGrid[i]));
    }
  }

  void block(const AttrTree& t) {
    const List* list = std::get_if<List>(&t.value);
    if (!list || list->empty() || list->size() > 3)
      return error(t.loc, fmt::format("'block' of 'cuda' must be a list of 1 to 3 extents{}",
                                      list ? fmt::format(", found {}", list->size()) : ""));
    for (size_t i = 0; i < list->size(); ++i) {
      const Expr* e = std::get_if<Expr>(&(*list)[i].value);
      const auto n = e ? fold(*e).constant() : std::nullopt;
      if (!n)
        error((*list)[i].loc,
              fmt::format("entry {} of 'block' of 'cuda' must be an integer known when compiling",
                          i));
      else if (*n < 1 || *n > kMostCudaBlock[i])
        error((*list)[i].loc, fmt::format("entry {} of 'block' of 'cuda' must be 1 to {}, found {}",
                                          i, kMostCudaBlock[i], *n));
      else
        out_.block[i] = *n;
    }
    if (out_.threads() > kMostCudaThreads)
      error(t.loc, fmt::format("'block' of 'cuda' has {} threads, more than {}", out_.threads(),
                               kMostCudaThreads));
  }

  void shared(const Attr& attr) {
    const Expr* e = std::get_if<Expr>(&attr.value);
    const auto n = e ? fold(*e).constant() : std::nullopt;
    if (!n)
      error(attr.loc, "'shared' of 'cuda' must be a number of bytes known when compiling");
    else if (*n < 0)
      error(attr.loc, fmt::format("'shared' of 'cuda' must be at least 0, found {}", *n));
    else
      out_.shared = *n;
  }

  bool is_operand(TensorId id) const {
    const auto in = [&](const std::vector<TensorId>& list) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    return in(op_.in) || in(op_.out);
  }
  std::vector<std::string> operands() const {
    std::vector<std::string> names;
    for (const auto* list : {&op_.in, &op_.out})
      for (const TensorId id : *list) names.push_back(graph_[id].name);
    return names;
  }

  void args(const AttrTree& t) {
    const List* list = std::get_if<List>(&t.value);
    if (!list) return error(t.loc, "'args' of 'cuda' must be a list of tensors and numbers");
    std::vector<bool> passed(graph_.tensors.size(), false);
    for (const AttrTree& arg : *list) {
      if (const double* d = std::get_if<double>(&arg.value)) {
        out_.args.push_back({*d, arg.loc});
        continue;
      }
      const Expr* e = std::get_if<Expr>(&arg.value);
      const auto id = e && e->nodes().size() == 1 ? graph_.find_tensor(e->str()) : std::nullopt;
      if (id && graph_[*id].kind != TensorKind::Scalar) {
        if (!is_operand(*id))
          error(arg.loc,
                fmt::format("'{}' is an argument of the kernel, but neither in 'in' nor in "
                            "'out' of 'cuda'",
                            graph_[*id].name));
        else
          out_.args.push_back({*id, arg.loc});
        passed[index(*id)] = true;
        continue;
      }
      if (const auto value = expression(
              arg, fmt::format("argument {} of the kernel", &arg - list->data() + 1), false))
        out_.args.push_back({canonical(*value), arg.loc});
    }
    for (const auto* operands : {&op_.in, &op_.out})
      for (const TensorId id : *operands)
        if (!passed[index(id)]) {
          error(t.loc, fmt::format("'{}' is in '{}' of 'cuda', but no argument of the kernel",
                                   graph_[id].name, operands == &op_.in ? "in" : "out"));
          passed[index(id)] = true;
        }
  }

  void regions(const AttrTree& t, bool writes, std::vector<CudaRegion>& out) {
    const std::string what = writes ? "'writes' of 'cuda'" : "'reads' of 'cuda'";
    const Map* map = std::get_if<Map>(&t.value);
    if (!map) return error(t.loc, what + " must be a map from tensors to lists of ranges");
    for (const AttrTree::Entry& e : *map) {
      const auto id = graph_.find_tensor(e.key);
      const std::vector<TensorId>& operands = writes ? op_.out : op_.in;
      if (!id || std::find(operands.begin(), operands.end(), *id) == operands.end()) {
        const bool other = id && is_operand(*id);
        error(e.key_loc,
              fmt::format("{} names '{}', which is {}{}", what, e.key,
                          other ? fmt::format("only in '{}' of the op", writes ? "in" : "out")
                                : "no operand of the op",
                          other ? "" : did_you_mean(e.key, this->operands())));
        continue;
      }
      const List* list = std::get_if<List>(&e.value.value);
      if (!list) {
        error(e.value.loc,
              fmt::format("'{}' in {} must be a list of ranges [begin, end)", e.key, what));
        continue;
      }
      CudaRegion region{.tensor = e.key, .ranges = {}, .loc = e.key_loc};
      for (size_t axis = 0; axis < list->size(); ++axis) {
        const List* range = std::get_if<List>(&(*list)[axis].value);
        if (!range || range->size() != 2) {
          error((*list)[axis].loc, fmt::format("axis {} of '{}' in {} must be a range [begin, end)",
                                               axis, e.key, what));
          continue;
        }
        const std::string of = fmt::format("axis {} of '{}' in {}", axis, e.key, what);
        const auto begin = expression((*range)[0], of, true),
                   end = expression((*range)[1], of, true);
        if (!begin || !end) continue;
        region.ranges.push_back({canonical(*begin), canonical(*end)});
        if (const auto n = canonical(*end - *begin).constant(); n && *n <= 0)
          error((*list)[axis].loc,
                fmt::format("{} is [{}, {}), which holds nothing", of, begin->str(), end->str()));
      }
      out.push_back(std::move(region));
    }
  }

  const Graph& graph_;
  const Op& op_;
  const std::function<void(Loc, std::string)>& report_;
  CudaOp out_;
  bool wrong_ = false;
};

}  // namespace

const CudaRegion* CudaOp::find(const std::vector<CudaRegion>& regions, std::string_view tensor) {
  for (const CudaRegion& r : regions)
    if (r.tensor == tensor) return &r;
  return nullptr;
}

std::optional<std::vector<std::string>> split_options(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (!quote && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote ? c == quote : c == '\'' || c == '"') {
      quote = quote ? '\0' : c;
      continue;
    }
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) c = text[++i];
    words.back() += c;
  }
  return quote ? std::nullopt : std::optional(std::move(words));
}

std::string option_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n\r'\"\\") == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string_view macro_name(std::string_view macro) {
  const std::string_view name = macro.substr(0, macro.find('='));
  return is_identifier(name) ? name : std::string_view();
}

std::optional<CudaOp> read_cuda_op(const Graph& graph, const Op& op,
                                   const std::function<void(Loc, std::string)>& error) {
  return Reader(graph, op, error).run();
}

bool is_wide_argument(const Graph& graph, const Expr& e) {
  if (e.is_constant()) return false;
  const auto range = bounds(e, [&](std::string_view n) { return graph.range_of(n); });
  return !range || range->lo < INT32_MIN || range->hi > INT32_MAX;
}

CudaOp cuda_op(const Graph& graph, const Op& op) {
  auto read = read_cuda_op(graph, op, [](Loc, const std::string& message) {
    internal_error(__FILE__, __LINE__, message);
  });
  return std::move(*read);
}

}  // namespace maco::ir
