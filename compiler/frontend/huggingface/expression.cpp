#include "compiler/frontend/huggingface/expression.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ir/diagnostics.h"

namespace maco::frontend::huggingface {

namespace {

constexpr int kMostDepth = 200;                // of parentheses and the like
constexpr size_t kMostText = size_t{1} << 16;  // of a joined text

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string kind_of(const Value& v) {
  if (v.is_null()) return "null";
  if (v.is_boolean()) return v.get<bool>() ? "true" : "false";
  if (v.is_string()) return "a text";
  if (v.is_array()) return "a list";
  if (v.is_object()) return "an object";
  return as_text(v);
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

class Parser {
 public:
  Parser(std::string_view text, const Scope& scope) : text_(text), scope_(scope) {}

  Value choice() {
    if (++depth_ > kMostDepth) fail("the expression is nested too deeply");
    Value v = conditional();
    --depth_;
    return v;
  }
  size_t end() const { return at_; }
  size_t blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_;
  }

 private:
  Value conditional() {
    Value condition = coalesced();
    if (!takes('?')) return condition;
    const bool first = live_ && holds(condition);
    Value yes = skipping(!first, [&] { return choice(); });
    if (!takes(':')) fail("expected ':' of 'condition ? a : b'");
    Value no = skipping(first, [&] { return choice(); });
    return first ? yes : no;
  }
  // Parses without evaluating if `skip`: an unneeded part may have a wrong value.
  template <typename F>
  Value skipping(bool skip, F parse) {
    const bool before = live_;
    live_ = live_ && !skip;
    Value v = parse();
    live_ = before;
    return v;
  }

  [[noreturn]] void fail(std::string message) { fail_at(std::move(message), blanks(), 1); }
  [[noreturn]] void fail_at(std::string message, size_t from, size_t length) {
    throw Wrong{std::move(message), from, std::max<size_t>(length, 1)};
  }
  // Fails because the value of the text from `from` to `end` (or to here) has the wrong type.
  [[noreturn]] void unsuited(const Value& v, size_t from, const char* wanted, size_t end = 0) {
    std::string_view source = text_.substr(from, (end > 0 ? end : at_) - from);
    while (!source.empty() && source.back() == ' ') source.remove_suffix(1);
    const std::string is = v.is_null() ? std::string("missing or null") : kind_of(v);
    fail_at(fmt::format("'{}' is {}, but {} is needed", source, is, wanted), from, source.size());
  }

  char peek() { return blanks() < text_.size() ? text_[at_] : '\0'; }
  bool at(std::string_view symbol) { return text_.substr(blanks()).starts_with(symbol); }
  bool takes(std::string_view symbol) {
    if (!at(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  // Takes a single '?' or ':': "??" is another operator.
  bool takes(char symbol) {
    if (peek() != symbol || (symbol == '?' && at("??"))) return false;
    ++at_;
    return true;
  }

  Value coalesced() {
    Value v = disjunction();
    while (takes(std::string_view("??"))) {
      const bool there = !v.is_null();
      Value other = skipping(there, [&] { return disjunction(); });
      if (!there) v = std::move(other);
    }
    return v;
  }
  Value disjunction() {
    Value v = conjunction();
    while (takes(std::string_view("||"))) {
      const bool yes = holds(v);
      const Value other = skipping(yes, [&] { return conjunction(); });
      v = yes || holds(other);
    }
    return v;
  }
  Value conjunction() {
    Value v = comparison();
    while (takes(std::string_view("&&"))) {
      const bool yes = holds(v);
      const Value other = skipping(!yes, [&] { return comparison(); });
      v = yes && holds(other);
    }
    return v;
  }
  Value comparison() {
    const size_t from = blanks();
    Value a = sum();
    const size_t left_end = at_;
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!takes(std::string_view(op))) continue;
      const size_t right = blanks();
      const Value b = sum();
      if (!live_) return nullptr;
      const std::string_view o = op;
      if (o == "==") return a == b;
      if (o == "!=") return a != b;
      if (!a.is_number()) unsuited(a, from, "a number", left_end);
      if (!b.is_number()) unsuited(b, right, "a number");
      if (o == "<") return a < b;
      if (o == ">") return a > b;
      return o == "<=" ? a <= b : a >= b;
    }
    return a;
  }
  Value sum() {
    const size_t from = blanks();
    Value a = product();
    while (peek() == '+' || peek() == '-') {
      const size_t left_end = at_;
      const char op = text_[at_++];
      const size_t right = blanks();
      const Value b = product();
      if (!live_) continue;
      if (op == '+' && (a.is_string() || b.is_string())) {
        if (!a.is_primitive() || a.is_null()) unsuited(a, from, "a text or a number", left_end);
        if (!b.is_primitive() || b.is_null()) unsuited(b, right, "a text or a number");
        a = as_text(a) + as_text(b);
        if (a.get_ref<const std::string&>().size() > kMostText)
          fail_at("the text is too long", from, at_ - from);
      } else {
        a = arithmetic(op == '+' ? "+" : "-", a, b, {from, left_end, right});
      }
    }
    return a;
  }
  Value product() {
    const size_t from = blanks();
    Value a = unary();
    for (;;) {
      std::string op;
      blanks();
      const size_t left_end = at_;
      if (takes(std::string_view("//")))
        op = "//";
      else if (peek() == '*' || peek() == '/' || peek() == '%')
        op = text_[at_++];
      else
        return a;
      const size_t right = blanks();
      const Value b = unary();
      if (live_) a = arithmetic(op, a, b, {from, left_end, right});
    }
  }
  // The places of an operator's operands.
  struct Places {
    size_t from = 0, left_end = 0, right = 0;
  };
  Value arithmetic(const std::string& op, const Value& a, const Value& b, const Places& places) {
    const size_t from = places.from;
    if (!a.is_number()) unsuited(a, from, "a number", places.left_end);
    if (!b.is_number()) unsuited(b, places.right, "a number");
    const bool whole = a.is_number_integer() && b.is_number_integer();
    const bool divides = op == "/" || op == "//" || op == "%";
    if (divides && b == 0) fail_at("division by zero", from, at_ - from);
    if (whole) {
      const auto x = a.get<int64_t>(), y = b.get<int64_t>();
      int64_t z = 0;
      const bool over = op == "+"   ? __builtin_add_overflow(x, y, &z)
                        : op == "-" ? __builtin_sub_overflow(x, y, &z)
                        : op == "*" ? __builtin_mul_overflow(x, y, &z)
                                    : x == INT64_MIN && y == -1;
      if (over) fail_at("the result is too large", from, at_ - from);
      if (op == "//") return floor_div(x, y);
      if (op == "%") return x - floor_div(x, y) * y;
      if (op == "/" && x % y == 0) return x / y;
      if (!divides) return z;
    }
    const double x = a.get<double>(), y = b.get<double>();
    if (op == "+") return x + y;
    if (op == "-") return x - y;
    if (op == "*") return x * y;
    if (op == "/") return x / y;
    return op == "//" ? std::floor(x / y) : x - std::floor(x / y) * y;
  }
  Value unary() {
    if (peek() == '!' && !at("!=")) {
      ++at_;
      return !holds(operand());
    }
    if (takes(std::string_view("-"))) {
      const size_t from = blanks();
      const Value v = operand();
      if (!live_) return nullptr;
      return arithmetic("-", 0, v, {from, from, from});
    }
    return postfix();
  }
  // The operand of '!' or '-'.
  Value operand() {
    if (++depth_ > kMostDepth) fail("the expression is nested too deeply");
    Value v = unary();
    --depth_;
    return v;
  }
  Value postfix() {
    const size_t from = blanks();
    Value v = primary();
    for (;;) {
      if (at_ + 1 < text_.size() && text_[at_] == '.' && begins_name(text_[at_ + 1])) {
        ++at_;
        const std::string member = name();
        if (!live_) continue;
        if (v.is_null()) continue;  // a missing object has no members either
        if (!v.is_object()) unsuited(v, from, "an object");
        v = v.contains(member) ? Value(v[member]) : Value();
      } else if (at_ < text_.size() && text_[at_] == '[') {
        ++at_;
        const Value i = choice();
        if (!takes(']')) fail("expected ']'");
        if (!live_) continue;
        if (!v.is_array()) unsuited(v, from, "a list");
        if (!i.is_number_integer()) fail_at("an index is an integer", from, at_ - from);
        const auto n = i.get<int64_t>(), size = static_cast<int64_t>(v.size());
        if (n < 0 || n >= size)
          fail_at(fmt::format("index {} of a list of {}", n, size), from, at_ - from);
        v = Value(v[static_cast<size_t>(n)]);
      } else {
        return v;
      }
    }
  }
  std::string name() {
    const size_t from = at_;
    while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }
  Value primary() {
    const size_t from = blanks();
    if (takes('(')) {
      Value v = choice();
      if (!takes(')')) fail("expected ')'");
      return v;
    }
    if (takes('[')) {
      Value list = Value::array();
      for (const Value& v : arguments(']')) list.push_back(v);
      return list;
    }
    if (peek() == '"') return quoted();
    if (is_digit(peek())) return literal();
    if (!begins_name(peek()))
      fail(at_ < text_.size() ? fmt::format("expected a value, found '{}'", text_[at_])
                              : "expected a value");
    const std::string word = name();
    if (word == "true") return true;
    if (word == "false") return false;
    if (word == "null") return nullptr;
    if (at_ < text_.size() && text_[at_] == '(') {
      ++at_;
      const std::vector<Value> given = arguments(')');
      const Function* f = scope_.function(word);
      if (f == nullptr)
        fail_at(fmt::format("there is no function '{}'{}", word,
                            ir::did_you_mean(word, scope_.names())),
                from, word.size());
      if (!live_) return nullptr;
      try {
        return (*f)(given);
      } catch (const Wrong& wrong) {
        fail_at(fmt::format("'{}': {}", word, wrong.message), from, at_ - from);
      }
    }
    const Value* v = scope_.value(word);
    if (v == nullptr)
      fail_at(fmt::format("unknown name '{}'{}", word, ir::did_you_mean(word, scope_.names())),
              from, word.size());
    return *v;
  }
  std::vector<Value> arguments(char close) {
    std::vector<Value> list;
    if (takes(close)) return list;
    do {
      if (peek() == close && !list.empty()) break;
      list.push_back(choice());
    } while (takes(','));
    if (!takes(close)) fail(fmt::format("expected '{}'", close));
    return list;
  }
  Value quoted() {
    const size_t from = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail_at("a text without its closing quote", from, text_.size() - from);
    const Value v = Value::parse(text_.substr(from, ++at_ - from), nullptr, false);
    if (v.is_discarded()) fail_at("a text has the escapes of JSON", from, at_ - from);
    return v;
  }
  Value literal() {
    const size_t from = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    };
    digits();
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
      ++at_;
      digits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      const size_t sign =
          at_ + 1 < text_.size() && (text_[at_ + 1] == '-' || text_[at_ + 1] == '+') ? 2 : 1;
      if (at_ + sign < text_.size() && is_digit(text_[at_ + sign])) {
        at_ += sign;
        digits();
      }
    }
    const Value v = Value::parse(text_.substr(from, at_ - from), nullptr, false);
    if (v.is_discarded() || (v.is_number_unsigned() && v.get<uint64_t>() > INT64_MAX))
      fail_at("no number", from, at_ - from);
    return v.is_number_unsigned() ? Value(v.get<int64_t>()) : v;
  }

  std::string_view text_;
  const Scope& scope_;
  size_t at_ = 0;
  bool live_ = true;
  int depth_ = 0;
};

}  // namespace

const Value* Scope::value(const std::string& name) const {
  if (const auto found = values_.find(name); found != values_.end()) return &found->second;
  return outer_ == nullptr ? nullptr : outer_->value(name);
}

const Function* Scope::function(const std::string& name) const {
  if (const auto found = functions_.find(name); found != functions_.end()) return &found->second;
  return outer_ == nullptr ? nullptr : outer_->function(name);
}

std::vector<std::string> Scope::names() const {
  std::vector<std::string> all = outer_ == nullptr ? std::vector<std::string>() : outer_->names();
  for (const auto& [name, value] : values_) all.push_back(name);
  for (const auto& [name, function] : functions_) all.push_back(name);
  return all;
}

Value evaluate_prefix(std::string_view text, const Scope& scope, size_t& end) {
  Parser parser(text, scope);
  Value v = parser.choice();
  end = parser.blanks();
  return v;
}

Value evaluate(std::string_view text, const Scope& scope) {
  size_t end = 0;
  Value v = evaluate_prefix(text, scope, end);
  if (end < text.size())
    throw Wrong{fmt::format("'{}' can't stand here", text.substr(end)), end, text.size() - end};
  return v;
}

bool holds(const Value& v) {
  if (v.is_null()) return false;
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number()) return v != 0;
  if (v.is_string()) return !v.get_ref<const std::string&>().empty();
  return !v.empty();
}

std::string as_text(const Value& v) {
  if (v.is_string()) return v.get<std::string>();
  if (v.is_number_float()) {
    const auto x = v.get<double>();
    if (x == std::floor(x) && std::abs(x) < 1e15) return fmt::format("{}", static_cast<int64_t>(x));
    return fmt::format("{}", x);
  }
  return v.dump();
}

int64_t integer(const Value& v, std::string_view what) {
  if (v.is_number_integer() && !(v.is_number_unsigned() && v.get<uint64_t>() > INT64_MAX))
    return v.get<int64_t>();
  throw Wrong{fmt::format("{} is {}, but must be an integer", what,
                          v.is_null() ? "missing or null" : kind_of(v))};
}

double number(const Value& v, std::string_view what) {
  if (v.is_number()) return v.get<double>();
  throw Wrong{fmt::format("{} is {}, but must be a number", what,
                          v.is_null() ? "missing or null" : kind_of(v))};
}

}  // namespace maco::frontend::huggingface
