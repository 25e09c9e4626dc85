#include "ir/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "ir/check.h"

namespace maco::ir {

namespace {

constexpr BodyFunction kFunctions[] = {{"add", 2, Takes::Integers},
                                       {"sub", 2, Takes::Integers},
                                       {"mul", 2, Takes::Integers},
                                       {"div", 2},
                                       {"pow", 2},
                                       {"maximum", 2, Takes::Integers},
                                       {"minimum", 2, Takes::Integers},
                                       {"clamp", 3, Takes::Integers},
                                       {"relu", 1, Takes::Integers},
                                       {"silu", 1},
                                       {"gelu", 1},
                                       {"gelu_tanh", 1},
                                       {"sigmoid", 1},
                                       {"tanh", 1},
                                       {"exp", 1},
                                       {"log", 1},
                                       {"sqrt", 1},
                                       {"rsqrt", 1},
                                       {"sin", 1},
                                       {"cos", 1},
                                       {"erf", 1},
                                       {"neg", 1, Takes::Integers},
                                       {"abs", 1, Takes::Integers},
                                       {"swiglu", 2},
                                       {"geglu", 2},
                                       {"geglu_tanh", 2},
                                       {"eq", 2, Takes::Bytes, true},
                                       {"ne", 2, Takes::Bytes, true},
                                       {"lt", 2, Takes::Bytes, true},
                                       {"le", 2, Takes::Bytes, true},
                                       {"gt", 2, Takes::Bytes, true},
                                       {"ge", 2, Takes::Bytes, true},
                                       {"where", 3, Takes::Bytes, false, true},
                                       {"cast", 1, Takes::All},
                                       {"copy", 1, Takes::All}};

// Parses the grammar of body.h from left to right; the first error is kept.
class Parser {
 public:
  Parser(std::string_view text, std::string& error) : text_(text), error_(error) {}

  std::optional<Body> body() {
    Body body;
    do {
      if (!step(body)) return std::nullopt;
    } while (accept(';'));
    if (at_ != text_.size()) return fail("expected ';'");
    return body;
  }

 private:
  bool step(Body& body) {
    const std::string name = word();
    if (name.empty()) return no("expected the name of a step");
    if (steps_.count(name)) return no(fmt::format("'{}' is defined twice", name));
    if (!accept('=')) return no("expected '='");
    BodyStep s;
    s.function = word();
    const BodyFunction* f = find_body_function(s.function);
    if (!f) return no(fmt::format("unknown function '{}'", s.function));
    if (!accept('(')) return no("expected '('");
    do {
      if (!arg(s)) return false;
    } while (accept(','));
    if (!accept(')')) return no("expected ')'");
    if (static_cast<int>(s.args.size()) != f->args)
      return no(fmt::format("'{}' takes {} arguments, not {}", f->name, f->args, s.args.size()));
    if (!accept(':')) return no("expected ':' and a dtype");
    const std::string type = word();
    const auto dtype = dtype_from_name(type);
    if (!dtype) return no(fmt::format("unknown dtype '{}'", type));
    s.dtype = *dtype;
    steps_[name] = static_cast<int>(body.steps.size());
    body.steps.push_back(std::move(s));
    return true;
  }

  bool arg(BodyStep& s) {
    if (accept('%')) {
      const std::string digits = word();
      if (digits.empty() || digits.size() > 4 ||
          !std::all_of(digits.begin(), digits.end(), ::isdigit))
        return no("expected the number of an operand");
      s.args.push_back(BodyArg::operand(std::stoi(digits)));
      return true;
    }
    const std::string name = word();
    if (name == "value" && accept('=')) {
      skip();
      double v = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (error != std::errc() || !std::isfinite(v)) return no("expected a number");
      at_ = static_cast<size_t>(end - text_.data());
      s.args.push_back(BodyArg::value(v));
      return true;
    }
    const auto known = steps_.find(name);
    if (known == steps_.end()) return no(fmt::format("unknown step '{}'", name));
    s.args.push_back(BodyArg::step(known->second));
    return true;
  }

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip();
    return true;
  }
  std::string word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool no(const std::string& why) {
    if (error_.empty()) error_ = fmt::format("{} at offset {} of '{}'", why, at_, text_);
    return false;
  }
  std::nullopt_t fail(const std::string& why) {
    no(why);
    return std::nullopt;
  }

  std::string_view text_;
  std::string& error_;
  size_t at_ = 0;
  std::map<std::string, int> steps_;
};

// The argument's dtype; nothing for constants, which take the other arguments' dtype.
std::optional<DType> arg_dtype(const Body& body, const BodyArg& arg,
                               const std::vector<DType>& operands) {
  switch (arg.kind) {
    case BodyArg::Kind::Operand: return operands[static_cast<size_t>(arg.index)];
    case BodyArg::Kind::Step: return body.steps[static_cast<size_t>(arg.index)].dtype;
    case BodyArg::Kind::Constant: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

const BodyFunction* find_body_function(std::string_view name) {
  for (const BodyFunction& f : kFunctions)
    if (f.name == name) return &f;
  return nullptr;
}

int Body::operands() const {
  int n = 0;
  for (const BodyStep& s : steps)
    for (const BodyArg& a : s.args)
      if (a.kind == BodyArg::Kind::Operand) n = std::max(n, a.index + 1);
  return n;
}

std::string print(const Body& body) {
  std::string text;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    const BodyStep& s = body.steps[i];
    text += fmt::format("{}t{} = {}(", i ? "; " : "", i, s.function);
    for (size_t j = 0; j < s.args.size(); ++j) {
      const BodyArg& a = s.args[j];
      if (j) text += ", ";
      switch (a.kind) {
        case BodyArg::Kind::Operand: text += fmt::format("%{}", a.index); break;
        case BodyArg::Kind::Step: text += fmt::format("t{}", a.index); break;
        case BodyArg::Kind::Constant: text += fmt::format("value={:.17g}", a.constant); break;
      }
    }
    text += fmt::format(") : {}", name(s.dtype));
  }
  return text;
}

std::optional<Body> parse_body(std::string_view text, std::string& error) {
  error.clear();
  return Parser(text, error).body();
}

std::string check_body(const Body& body, const std::vector<DType>& operands) {
  if (body.operands() > static_cast<int>(operands.size()))
    return fmt::format("uses operand %{}, but there are {} operands", body.operands() - 1,
                       operands.size());
  for (const BodyStep& s : body.steps) {
    const BodyFunction* f = find_body_function(s.function);
    MACO_CHECK(f, s.function);
    if (f->chooses)
      if (const auto t = arg_dtype(body, s.args[0], operands); t != DType::U8)
        return fmt::format(
            "the condition of '{}' is u8, not {}", f->name,
            t ? fmt::format("{}; write ne(condition, value = 0)", name(*t)) : "a number");
    std::optional<DType> first;
    for (size_t i = f->chooses ? 1 : 0; i < s.args.size(); ++i) {
      const auto t = arg_dtype(body, s.args[i], operands);
      if (!t || f->takes == Takes::All) continue;
      if (!is_float(*t) && f->takes == Takes::Floats)
        return fmt::format("'{}' is not defined for {}; cast it to a float type first", f->name,
                           name(*t));
      if (*t == DType::U8 && f->takes != Takes::Bytes)
        return fmt::format("'{}' is not defined for u8; cast it to i32 or a float type first",
                           f->name);
      if (first && (is_float(*first) != is_float(*t) || (*first != *t && !is_float(*t))))
        return fmt::format("'{}' cannot mix {} and {}; cast one of them", f->name, name(*first),
                           name(*t));
      first = t;
    }
    for (const BodyArg& a : s.args) {
      if (a.kind != BodyArg::Kind::Constant) continue;
      if (!computes_in_float(body, s, operands)) {
        if (a.constant != std::trunc(a.constant))
          return fmt::format("{} is not an integer, but '{}' computes in i32 here", a.constant,
                             f->name);
        if (std::abs(a.constant + 0.5) > 2147483647.5)
          return fmt::format("{:.17g} does not fit in i32", a.constant);
      } else if (!fits_f32(a.constant)) {
        return fmt::format("{:g} does not fit in f32", a.constant);
      }
    }
  }
  return "";
}

bool moves(const Body& body, const std::vector<DType>& operands) {
  return operands.size() == 1 &&
         std::all_of(body.steps.begin(), body.steps.end(),
                     [&](const BodyStep& s) { return keeps_bits(body, s, operands); });
}

std::string_view name(Spread spread) {
  constexpr std::string_view words[] = {"full", "column", "single", "acc"};
  return words[static_cast<size_t>(spread)];
}

std::vector<DType> BodyParam::dtypes() const {
  std::vector<DType> all;
  for (const BodyOperand& o : operands) all.push_back(o.dtype);
  return all;
}

size_t BodyParam::accumulators() const {
  size_t n = 0;
  while (n < operands.size() && operands[n].spread == Spread::Accumulator) ++n;
  return n;
}

std::string check_body(const BodyParam& param) {
  if (param.body.steps.empty()) return "has no steps";
  for (size_t i = 0; i < param.operands.size(); ++i) {
    const BodyOperand& o = param.operands[i];
    if (o.spread != Spread::Accumulator) continue;
    if (i > 0 && (param.operands[i - 1].spread != Spread::Accumulator ||
                  param.operands[i - 1].dtype != o.dtype))
      return fmt::format("operand %{} is an accumulator, which only the first ones may be", i);
    if (o.dtype != DType::F32 && o.dtype != DType::I32)
      return fmt::format("an accumulator is f32 or i32, not {}", name(o.dtype));
  }
  return check_body(param.body, param.dtypes());
}

bool computes_in_float(const Body& body, const BodyStep& s, const std::vector<DType>& operands) {
  for (size_t i = find_body_function(s.function)->chooses ? 1 : 0; i < s.args.size(); ++i)
    if (auto t = arg_dtype(body, s.args[i], operands)) return is_float(*t);
  return true;
}

bool gives_float(const Body& body, const BodyStep& s, const std::vector<DType>& operands) {
  // 0 and 1 are the same in both.
  return find_body_function(s.function)->truth ? is_float(s.dtype)
                                               : computes_in_float(body, s, operands);
}

bool keeps_bits(const Body& body, const BodyStep& s, const std::vector<DType>& operands) {
  return (s.function == "cast" || s.function == "copy") &&
         arg_dtype(body, s.args[0], operands) == s.dtype;
}

}  // namespace maco::ir
