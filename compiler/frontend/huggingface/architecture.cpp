#include "compiler/frontend/huggingface/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace maco::frontend::huggingface {

namespace {

// Limits on an expanded file, with its loops: lines, and params of all iterations.
constexpr int64_t kMostLines = 1'000'000, kMostParams = 65536;
constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view s) {
  const size_t from = s.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return s.substr(from, s.find_last_not_of(kBlanks) - from + 1);
}
bool is_name(std::string_view s) {
  return !s.empty() && !std::isdigit(static_cast<unsigned char>(s[0])) &&
         std::all_of(s.begin(), s.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
         });
}
// The line without its comment; a '#' within quotes begins none.
std::string_view uncommented(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) quoted = !quoted;
    if (line[i] == '#' && !quoted) return line.substr(0, i);
  }
  return line;
}
std::string_view word_of(std::string_view s) { return s.substr(0, s.find_first_of(" \t([{")); }

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Thrown to end the expansion after an error was reported.
struct Stopped {};

// A `repeat` of the DSL around a line.
struct Repeat {
  std::string variable;
  int64_t begin = 0, end = 0;
};

class Expander {
 public:
  Expander(int32_t file, const Scope& base, ir::Diagnostics& diagnostics)
      : file_(file), diagnostics_(diagnostics), lines_(lines_of(diagnostics.file_text(file))) {
    result_.names = Scope(&base);
  }

  Expanded run() {
    block(result_.names, true, false);
    if (at_ < lines_.size()) fail("this '}' closes nothing", text());
    if (!had_graph_) {
      diagnostics_.error(loc(lines_.empty() ? std::string_view() : lines_[0]),
                         "the file has no 'graph { ... }'");
      throw Stopped();
    }
    return std::move(result_);
  }

 private:
  // The current line, without its comment and the blanks around it.
  std::string_view text() const { return trimmed(uncommented(lines_[at_])); }
  // The place of a piece of the file's text; for any other text the current line.
  ir::Loc loc(std::string_view piece) const {
    const size_t line = std::min(at_, lines_.empty() ? 0 : lines_.size() - 1);
    const std::string_view whole = lines_.empty() ? std::string_view() : lines_[line];
    const bool inside = piece.data() >= whole.data() && piece.data() <= whole.data() + whole.size();
    if (!inside) piece = trimmed(whole);
    return {.file = file_,
            .line = static_cast<int32_t>(line) + 1,
            .column = static_cast<int32_t>(piece.data() - whole.data()) + 1,
            .length = std::max<int32_t>(1, static_cast<int32_t>(piece.size()))};
  }
  [[noreturn]] void fail(std::string message, std::string_view piece) {
    diagnostics_.error(loc(piece), std::move(message));
    throw Stopped();
  }
  [[noreturn]] void fail(const Wrong& wrong, std::string_view source) {
    fail(wrong.message, source.substr(std::min(wrong.at, source.size()), wrong.length));
  }

  Value value(std::string_view source, const Scope& scope) {
    try {
      return evaluate(source, scope);
    } catch (const Wrong& wrong) {
      fail(wrong, source);
    }
  }
  int64_t whole(std::string_view source, const Scope& scope, std::string_view what) {
    const Value v = value(source, scope);
    if (!v.is_number_integer())
      fail(fmt::format("{} is {}, but must be an integer", what, as_text(v)), source);
    return v.get<int64_t>();
  }

  // The text with the values of its $name and ${expression}.
  std::string filled(std::string_view s, const Scope& scope) {
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '$') {
        out += s[i];
        continue;
      }
      const std::string_view rest = s.substr(i + 1);
      Value v;
      if (!rest.empty() && rest[0] == '{') {
        size_t end = 0;
        const std::string_view inner = rest.substr(1);
        try {
          v = evaluate_prefix(inner, scope, end);
        } catch (const Wrong& wrong) {
          fail(wrong, inner);
        }
        if (end >= inner.size() || inner[end] != '}')
          fail("expected '}' behind the expression of '${'",
               inner.substr(std::min(end, inner.size())));
        i += end + 2;
      } else {
        size_t n = 0;
        while (n < rest.size() &&
               (std::isalnum(static_cast<unsigned char>(rest[n])) || rest[n] == '_'))
          ++n;
        if (n == 0) fail("a name or '{' belongs behind '$'", s.substr(i, 1));
        v = value(rest.substr(0, n), scope);
        i += n;
      }
      if (v.is_null() || v.is_object() || v.is_array())
        fail(fmt::format("a placeholder is {}, but must be a number or a text", v.is_null() ? "null"
                                                                                : v.is_array()
                                                                                    ? "a list"
                                                                                    : "an object"),
             s);
      out += as_text(v);
    }
    return out;
  }

  // Reads up to the line that begins with the '}' of this block, or to the end of the file.
  void block(Scope& scope, bool live, bool in_graph) {
    for (; at_ < lines_.size(); ++at_) {
      const std::string_view line = text();
      if (line.empty()) continue;
      if (line[0] == '}') return;
      if (++lines_done_ > kMostLines)
        fail(fmt::format("the file comes to more than {} lines", kMostLines), line);
      statement(line, scope, live, in_graph);
    }
  }
  // Reads a block with its braces, from its first line on; stops at the line with its '}'.
  void braced(Scope& scope, bool live, bool in_graph) {
    const std::string_view opener = text();
    const size_t opened = at_++;
    block(scope, live, in_graph);
    if (at_ < lines_.size()) return;
    at_ = opened;
    fail("the '{' of this block isn't closed", opener);
  }

  void statement(std::string_view line, Scope& scope, bool live, bool in_graph) {
    const std::string_view word = word_of(line), rest = trimmed(line.substr(word.size()));
    const bool opens = line.back() == '{';
    if (word == "let" && rest.find('=') != std::string_view::npos &&
        is_name(trimmed(rest.substr(0, rest.find('='))))) {
      if (live)
        scope.set(std::string(trimmed(rest.substr(0, rest.find('=')))),
                  value(trimmed(rest.substr(rest.find('=') + 1)), scope));
    } else if (word == "if" && opens) {
      conditional(rest, scope, live, in_graph);
    } else if (word == "for" && opens) {
      loop(rest, scope, live, in_graph);
    } else if (word == "refuse") {
      refusal(rest, scope, live);
    } else if (word == "ignore") {
      const Value pattern = live ? value(rest, scope) : Value("");
      if (!pattern.is_string())
        fail("'ignore' wants the names of tensors as a text, such as \"vision_tower.*\"", rest);
      if (live) result_.ignored.push_back(pattern.get<std::string>());
    } else if (in_graph) {
      graph_line(line, word, rest, scope, live);
    } else if (word == "architectures") {
      return;  // read before
    } else if (line == "graph {") {
      if (had_graph_ && live) fail("the file has two graphs", line);
      had_graph_ = had_graph_ || live;
      Scope inner(&scope);
      braced(inner, live, true);
      closed();
    } else {
      fail(fmt::format(
               "expected 'let', 'if', 'for', 'refuse', 'ignore' or 'graph {{', found '{}'{}", word,
               ir::did_you_mean(
                   word, {"let", "if", "for", "refuse", "ignore", "graph", "architectures"})),
           line);
    }
  }
  void closed() {
    if (text() != "}") fail("expected '}' alone on its line", text());
  }

  void conditional(std::string_view rest, const Scope& scope, bool live, bool in_graph) {
    bool done = false;  // whether a branch was taken
    std::string_view condition = trimmed(rest.substr(0, rest.size() - 1));
    for (;;) {
      const bool taken = live && !done && (condition.empty() || holds(value(condition, scope)));
      Scope inner(&scope);
      braced(inner, taken, in_graph);
      done = done || taken;
      const std::string_view line = text();
      if (line == "}") return;
      const std::string_view behind = trimmed(line.substr(1));
      if (!behind.starts_with("else") || behind.back() != '{')
        fail("expected '}', '} else {' or '} else if ... {'", line);
      const std::string_view next = trimmed(behind.substr(4, behind.size() - 5));
      if (!next.empty() && word_of(next) != "if")
        fail("expected '} else {' or '} else if ... {'", line);
      condition = next.empty() ? next : trimmed(next.substr(2));
    }
  }

  void loop(std::string_view rest, const Scope& scope, bool live, bool in_graph) {
    const std::string_view head = trimmed(rest.substr(0, rest.size() - 1));
    const size_t in = head.find(" in "), dots = head.find("..");
    if (in == std::string_view::npos || dots == std::string_view::npos || dots < in ||
        !is_name(trimmed(head.substr(0, in))))
      fail("expected 'for i in 0..n {'", head);
    const std::string variable(trimmed(head.substr(0, in)));
    const int64_t begin =
        live ? whole(trimmed(head.substr(in + 4, dots - in - 4)), scope, "the first value") : 0;
    const int64_t end = live ? whole(trimmed(head.substr(dots + 2)), scope, "the end") : 0;
    if (begin < -kMostLines || end > kMostLines)
      fail(fmt::format("'{}' goes from {} to {}", variable, begin, end), head);
    const size_t first = at_;
    for (int64_t i = begin; i < end; ++i) {
      at_ = first;
      Scope inner(&scope);
      inner.set(variable, Value(i));
      braced(inner, live, in_graph);
    }
    if (begin >= end) {
      Scope inner(&scope);
      inner.set(variable, Value(begin));
      braced(inner, false, in_graph);
    }
    closed();
  }

  // refuse if CONDITION : "MESSAGE"
  void refusal(std::string_view rest, const Scope& scope, bool live) {
    const size_t colon = rest.find(" : \"");
    if (word_of(rest) != "if" || colon == std::string_view::npos || rest.back() != '"')
      fail("expected 'refuse if CONDITION : \"MESSAGE\"'", rest);
    if (!live || !holds(value(trimmed(rest.substr(2, colon - 2)), scope))) return;
    const std::string_view message = rest.substr(colon + 4);
    diagnostics_.error(loc(rest), filled(message.substr(0, message.size() - 1), scope));
    throw Stopped();
  }

  void graph_line(std::string_view line, std::string_view word, std::string_view rest, Scope& scope,
                  bool live) {
    if (line.back() == '{') {
      const std::string head = live ? filled(line, scope) : std::string();
      const bool repeats = live && word == "repeat";
      if (repeats) repeats_.push_back(repeat_of(head, scope));
      if (live) emit(head);
      ++depth_;
      Scope inner(&scope);
      braced(inner, live, true);
      --depth_;
      closed();
      if (live) emit("}");
      if (repeats) repeats_.pop_back();
      return;
    }
    if (!live) return;
    if (word == "from" || word == "values") {
      if (!may_follow_) fail(fmt::format("'{}' belongs behind a 'param'", word), line);
      if (word == "from")
        origin(rest, scope);
      else
        values(rest, scope);
      return;
    }
    may_follow_ = word == "param";
    emit(filled(line, scope));
    if (may_follow_) param(filled(line, scope), scope);
  }
  void emit(const std::string& line) {
    result_.graph.push_back(std::string(2 * (depth_ + 1), ' ') + line);
  }

  Repeat repeat_of(std::string_view head, const Scope& scope) {
    head = trimmed(head.substr(0, head.size() - 1));
    head.remove_prefix(std::string_view("repeat").size());
    const size_t in = head.find(" in "), dots = head.find("..");
    if (in == std::string_view::npos || dots == std::string_view::npos || dots < in)
      fail("expected 'repeat i in 0..n {'", text());
    Repeat r{.variable = std::string(trimmed(head.substr(0, in)))};
    r.begin = whole(trimmed(head.substr(in + 4, dots - in - 4)), scope, "the first value");
    r.end = whole(trimmed(head.substr(dots + 2)), scope, "the end");
    return r;
  }

  // Calls `f` with the scope of each iteration of the repeats around this place.
  template <typename F>
  void each_iteration(const Scope& scope, size_t level, F f) {
    if (level == repeats_.size()) return f(scope);
    const Repeat& r = repeats_[level];
    for (int64_t i = r.begin; i < r.end; ++i) {
      if (++iterations_ > kMostLines)
        fail("the repeats around this have too many iterations", text());
      Scope inner(&scope);
      inner.set(r.variable, Value(i));
      each_iteration(inner, level + 1, f);
    }
  }
  // The text with `{i}` and `{i + 1}` replaced, as in the DSL.
  std::string unrolled(std::string_view s, const Scope& scope) {
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      const size_t end = s[i] == '{' ? s.find('}', i) : std::string_view::npos;
      if (end == std::string_view::npos) {
        out += s[i];
        continue;
      }
      out += as_text(value(s.substr(i + 1, end - i - 1), scope));
      i = end;
    }
    return out;
  }

  // param NAME : DTYPE[extents]
  void param(const std::string& line, const Scope& scope) {
    const std::string_view s = trimmed(std::string_view(line).substr(5));
    const size_t colon = s.find(" : "),
                 open = s.find('[', colon == std::string_view::npos ? 0 : colon);
    if (colon == std::string_view::npos || open == std::string_view::npos || s.back() != ']')
      fail("expected 'param NAME : DTYPE[extents]'", text());
    ParamOrigin p;
    p.dtype = trimmed(s.substr(colon + 3, open - colon - 3));
    p.loc = loc(text());
    const Value shape = value(s.substr(open), scope);
    for (const Value& extent : shape) {
      if (!extent.is_number_integer() || extent.get<int64_t>() < 1)
        fail(fmt::format("an extent of '{}' is {}, but must be a positive integer",
                         trimmed(s.substr(0, colon)), as_text(extent)),
             text());
      p.shape.push_back(extent.get<int64_t>());
    }
    first_ = result_.params.size();
    each_iteration(scope, 0, [&](const Scope& inner) {
      p.name = unrolled(trimmed(s.substr(0, colon)), inner);
      if (static_cast<int64_t>(result_.params.size()) == kMostParams)
        fail(fmt::format("the graph has more than {} params", kMostParams), text());
      result_.params.push_back(p);
    });
  }

  void values(std::string_view rest, const Scope& scope) {
    const Value list = value(rest, scope);
    if (!list.is_array() ||
        std::any_of(list.begin(), list.end(), [](const Value& v) { return !v.is_number(); }))
      fail("'values' wants a list of numbers", rest);
    for (size_t i = first_; i < result_.params.size(); ++i) result_.params[i].values = list;
  }

  void origin(std::string_view rest, const Scope& scope) {
    const std::string line = filled(rest, scope);
    std::string_view s = line;
    const size_t named = std::min(s.find_first_of(" \t["), s.size());
    const std::string_view name = s.substr(0, named);
    s.remove_prefix(named);
    Origin o;
    o.loc = loc(rest);
    if (!s.empty() && s[0] == '[') {
      const size_t close = s.find(']'), colon = s.find(':');
      if (close == std::string_view::npos || colon == std::string_view::npos || colon > close)
        fail("expected '[begin:end]'", rest);
      o.range = {whole(trimmed(s.substr(1, colon - 1)), scope, "a row"),
                 whole(trimmed(s.substr(colon + 1, close - colon - 1)), scope, "a row")};
      s.remove_prefix(close + 1);
    }
    for (s = trimmed(s); !s.empty(); s = trimmed(s)) {
      const std::string_view key = word_of(s);
      s = trimmed(s.substr(key.size()));
      if (key == "transpose" || key == "once") {
        (key == "once" ? o.once : o.transpose) = true;
        continue;
      }
      const std::string_view argument = word_of(s);
      if (key != "rows" && key != "columns" && key != "plus")
        fail(fmt::format("expected rows, columns, transpose, plus or once, found '{}'{}", key,
                         ir::did_you_mean(key, {"rows", "columns", "transpose", "plus", "once"})),
             rest);
      const Value v = value(argument, scope);
      if (key == "plus") {
        if (!v.is_number()) fail("'plus' wants a number", rest);
        o.plus = v.get<double>();
      } else {
        if (!v.is_object() || !v.contains("cut"))
          fail(fmt::format("'{}' wants the name of a cut, as `let inner = "
                           "even(config.intermediate_size)` makes one",
                           key),
               rest);
        (key == "rows" ? o.rows : o.columns) = v;
      }
      s.remove_prefix(argument.size());
    }
    size_t i = first_;
    each_iteration(scope, 0, [&](const Scope& inner) {
      o.name = unrolled(name, inner);
      result_.params[i++].origins.push_back(o);
    });
  }

  int32_t file_;
  ir::Diagnostics& diagnostics_;
  std::vector<std::string_view> lines_;
  size_t at_ = 0;
  size_t depth_ = 0;
  int64_t lines_done_ = 0, iterations_ = 0;
  bool had_graph_ = false;
  bool may_follow_ = false;  // whether `from` and `values` may follow
  size_t first_ = 0;         // first iteration of the last param
  std::vector<Repeat> repeats_;
  Expanded result_;
};

}  // namespace

std::vector<std::string> architectures_of(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view line : lines_of(text)) {
    std::string_view s = trimmed(uncommented(line));
    if (word_of(s) != "architectures") continue;
    s = trimmed(s.substr(word_of(s).size()));
    while (!s.empty()) {
      const std::string_view name = s.substr(0, std::min(s.find_first_of(" \t,"), s.size()));
      if (!name.empty()) names.emplace_back(name);
      s.remove_prefix(std::min(name.size() + 1, s.size()));
    }
    return names;
  }
  return names;
}

std::optional<Expanded> expand(int32_t file, const Scope& base, ir::Diagnostics& diagnostics) {
  try {
    return Expander(file, base, diagnostics).run();
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

}  // namespace maco::frontend::huggingface
