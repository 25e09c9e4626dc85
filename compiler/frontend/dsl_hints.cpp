// How the DSL says what people write in Python, C, Rust and MLIR.
#include "compiler/frontend/dsl_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "compiler/ops/op.h"
#include "compiler/ops/other_names.h"

namespace maco::frontend {

namespace {

constexpr const char* kKernel = "a CUDA kernel of your own can do it (docs/cuda-kernels.md)";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && (blank(text.back()) || text.back() == ';')) text.remove_suffix(1);
  return text;
}

/// The first of `symbols` outside of '{i + 1}', from `from` on.
size_t find_symbol(std::string_view text, std::string_view symbols, size_t from) {
  int depth = 0;
  for (size_t i = from; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0 && symbols.find(text[i]) != std::string_view::npos) return i;
  }
  return std::string_view::npos;
}

bool is_name(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  int depth = 0;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    const bool inside = depth > 0;
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    return inside || depth > 0 || is_letter(c) || is_digit(c) || c == '.';
  });
}
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
bool is_operand(std::string_view text) { return is_name(text) || number(text).has_value(); }

/// "a OP b" as a call, or "".
std::string call_of(std::string_view a, std::string_view symbol, std::string_view b) {
  const bool left = is_name(a), right = is_name(b);
  if (!left && !right) return "";
  const auto op = [&](std::string_view kind) {
    if (left && right) return fmt::format("write '{}({}, {})'", kind, a, b);
    return fmt::format("write '{}({}, value = {})'", kind, left ? a : b, left ? b : a);
  };
  if (symbol == "+") return op("add");
  if (symbol == "*") return op("mul");
  if (symbol == "@") return left && right ? op("matmul") : "";
  if (symbol == "**")
    return number(b) == 2.0 ? fmt::format("write 'mul({0}, {0})'", a)
                            : fmt::format("no op takes powers; {}", kKernel);
  if (symbol == "-") {
    if (left) return op("sub");
    return fmt::format("write 'n = mul({}, value = -1)' and 'add(n, value = {})'", b, a);
  }
  if (symbol == "/" || symbol == "//") {
    if (left && number(b) && *number(b) != 0)
      return fmt::format("write 'mul({}, value = {})'", a, 1 / *number(b));
    return fmt::format("no op divides by a tensor; {}", kKernel);
  }
  return "";
}

const std::map<std::string, std::string, std::less<>>& statement_hints() {
  static const std::string functions =
      "; a graph has no functions: what no op computes, a CUDA kernel of your own does "
      "(docs/cuda-kernels.md)";
  static const std::string loops = "; loops are written 'repeat i in 0..4 {'";
  static const std::string branches = "; a graph has no branches";
  static const std::string defined = "; a tensor needs no word: write '{} = ...'";
  static const std::map<std::string, std::string, std::less<>> hints = {
      {"auto", defined},
      {"class", functions},
      {"const", defined},
      {"constexpr", defined},
      {"def", functions},
      {"elif", branches},
      {"else", branches},
      {"end", "; blocks end with '}'"},
      {"float", defined},
      {"fn", functions},
      {"for", loops},
      {"from", "; a graph includes no other files"},
      {"func", functions},
      {"function", functions},
      {"if", branches},
      {"import", "; a graph includes no other files"},
      {"include", "; a graph includes no other files"},
      {"int", defined},
      {"let", defined},
      {"loop", loops},
      {"mut", defined},
      {"return", "; results are outputs: write 'output {} = ...' where the op stands"},
      {"struct", functions},
      {"switch", branches},
      {"temp", defined},
      {"tensor", defined},
      {"Tensor", defined},
      {"val", defined},
      {"var", defined},
      {"void", functions},
      {"while", loops},
      {"yield", "; results are outputs: write 'output {} = ...' where the op stands"},
  };
  return hints;
}

/// The first name in `text`, or `otherwise`.
std::string first_name(std::string_view text, std::string_view otherwise) {
  text = trimmed(text);
  size_t n = 0;
  while (n < text.size() &&
         (is_letter(text[n]) || (n > 0 && (is_digit(text[n]) || text[n] == '.'))))
    ++n;
  return std::string(n == 0 ? otherwise : text.substr(0, n));
}

}  // namespace

std::string hint_for_statement(std::string_view word, std::string_view rest,
                               const std::vector<std::string>& statements) {
  rest = trimmed(rest);
  const bool typed = rest.find(':') != std::string_view::npos;
  if (typed)
    if (const std::string other = ops::other_name(word, statements); !other.empty())
      return fmt::format("; did you mean '{}'?", other);
  if (const auto hint = statement_hints().find(word); hint != statement_hints().end()) {
    const std::string& text = hint->second;
    const size_t blank = text.find("{} ");
    return blank == std::string::npos
               ? text
               : text.substr(0, blank) + first_name(rest, "y") + text.substr(blank + 2);
  }
  if (!rest.empty() && rest[0] == ':' && rest.substr(0, 2) != ":=") {
    if (rest.find('=') != std::string_view::npos)
      return fmt::format("; the type of a temporary follows from its op: write '{} = ...'", word);
    return fmt::format("; say what '{0}' is: 'input {0} {1}', or 'param' or 'state'", word, rest);
  }
  for (std::string_view symbol : {":=", "<-"})
    if (rest.substr(0, 2) == symbol) return fmt::format("; write '=' for '{}'", symbol);
  if (rest.size() > 1 && rest[1] == '=' && std::string_view("+-*/@").find(rest[0]) < 5) {
    const std::string call = call_of(word, rest.substr(0, 1), trimmed(rest.substr(2)));
    return "; a tensor is written once: give the result another name" +
           (call.empty() ? "" : ", and " + call);
  }
  if (!rest.empty() && rest[0] == '[') return "; an op writes its results as a whole";
  return ops::did_you_mean(word, statements);
}

std::string hint_for_expression(std::string_view text) {
  constexpr std::string_view kSymbols = "+-*/@%<>&|^";
  text = trimmed(text);
  while (text.size() > 1 && text.front() == '(' && text.back() == ')' &&
         text.find_first_of("()", 1) == text.size() - 1)
    text = trimmed(text.substr(1, text.size() - 2));
  if (text.empty()) return "";
  if (text[0] == '-' && is_name(trimmed(text.substr(1))))
    return fmt::format("write 'mul({}, value = -1)'", trimmed(text.substr(1)));
  if (number(text)) return "a constant is a param: declare it and bind its values";
  if (text.size() > 2 && text.substr(text.size() - 2) == ".T" && is_name(text))
    return fmt::format("write 'transpose({})'", text.substr(0, text.size() - 2));
  if (is_name(text)) return fmt::format("write 'copy({})'", text);
  if (const size_t at = text.find('['); at != std::string_view::npos && is_name(text.substr(0, at)))
    return fmt::format("write 'slice({}, axis = ..., begin = ..., end = ...)'", text.substr(0, at));
  const size_t from = text[0] == '-' ? 1 : 0;
  const size_t at = find_symbol(text, kSymbols, from);
  if (at == std::string_view::npos) return "";
  // A number like '1e-5' in '1e-5 * x'.
  size_t where = at;
  if (text[at] == '-' || text[at] == '+')
    if (at > 0 && (text[at - 1] == 'e' || text[at - 1] == 'E') && is_digit(text[from]))
      where = find_symbol(text, kSymbols, at + 1);
  if (where == std::string_view::npos) return "";
  const size_t length = text.substr(where, 2) == "**" || text.substr(where, 2) == "//" ? 2 : 1;
  const std::string_view a = trimmed(text.substr(0, where)),
                         b = trimmed(text.substr(where + length));
  if (is_operand(a) && is_operand(b))
    if (std::string call = call_of(a, text.substr(where, length), b); !call.empty()) return call;
  if (text.substr(0, where).find('(') == std::string_view::npos || b.empty())
    return is_operand(a) || a.find('(') != std::string_view::npos
               ? "operators are ops, one a line: 't = mul(a, b)', then 'y = add(t, c)'"
               : "";
  return "operators are ops, one a line: 't = mul(a, b)', then 'y = add(t, c)'";
}

bool is_control(std::string_view word) {
  return word == "for" || word == "while" || word == "if" || word == "switch" || word == "return";
}

std::string hint_for_operand(std::string_view kind, std::string_view text) {
  const char next = text.empty() ? '\0' : text[0];
  const ops::OpDef* def = ops::find_op(kind);
  if (next == '"' || next == '\'') return "; names of tensors stand without quotes";
  const auto attribute = [&](std::initializer_list<ops::AttrType> types) -> std::string {
    if (def != nullptr)
      for (const ops::AttrSpec& a : def->attrs)
        if (!a.internal && std::find(types.begin(), types.end(), a.type) != types.end())
          return a.name;
    return "";
  };
  if (is_digit(next) || next == '-' || next == '.') {
    const std::string name = attribute({ops::AttrType::Number});
    const std::string other = attribute({ops::AttrType::Int, ops::AttrType::RuntimeInt});
    const std::string& named = name.empty() ? other : name;
    if (named.empty()) return fmt::format("; '{}' takes no numbers", kind);
    return fmt::format("; numbers are attributes: '{} = {}'", named,
                       trimmed(text.substr(0, text.find_first_of(",)"))));
  }
  if (next == '[' || next == '(') {
    const std::string name = attribute({ops::AttrType::IntList});
    if (!name.empty()) return fmt::format("; lists are attributes: '{} = [...]'", name);
    return "; operands stand one beside the other, without brackets of their own";
  }
  return "";
}

std::string hint_for_symbol(std::string_view text) {
  const auto begins = [&](std::string_view with) { return text.substr(0, with.size()) == with; };
  if (begins("'")) return "; quotes are double ones: \"...\"";
  for (std::string_view quote : {"\xe2\x80\x98", "\xe2\x80\x99", "\xe2\x80\x9c", "\xe2\x80\x9d"})
    if (begins(quote)) return "; quotes are double ones: \"...\"";
  if (begins("%") && text.size() > 1 && (is_letter(text[1]) || is_digit(text[1])))
    return "; names have no '%'";
  if (begins("$")) return "; names have no '$'; the variable of a repeat is written '{i}'";
  if (begins("->")) return "; results stand in front: 'y = relu(x)'";
  if (begins(":=")) return "; write '='";
  return "";
}

}  // namespace maco::frontend
