// Expressions of .arch files, over values of JSON: config.hidden_size, heads / kv_heads, a ?? b.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace maco::frontend::huggingface {

using Value = nlohmann::json;

/// An error in an expression, and its place in the text.
struct Wrong {
  std::string message;
  size_t at = 0, length = 1;
};

/// A function of an expression. Throws a Wrong if the arguments don't suit; its place isn't used.
using Function = std::function<Value(const std::vector<Value>& arguments)>;

/// The names that an expression may use, including those of the blocks around it.
class Scope {
 public:
  explicit Scope(const Scope* outer = nullptr) : outer_(outer) {}
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  void set(const std::string& name, Function function) { functions_[name] = std::move(function); }
  const Value* value(const std::string& name) const;
  const Function* function(const std::string& name) const;
  /// For hints.
  std::vector<std::string> names() const;

 private:
  const Scope* outer_;
  std::map<std::string, Value> values_;
  std::map<std::string, Function> functions_;
};

/// Evaluates the expression at the beginning of `text`, and sets `end` to its end. Throws a Wrong.
/// Operators from weak to strong: `a ? b : c`, `??` (the right side if the left is null), `||`,
/// `&&`, comparisons, `+ -`, `* / // %`, `! -`, `a.b` (null if an object has no such member),
/// `a[i]`, `f(...)`. `/` of integers gives an integer if it is whole; `//` and `%` floor. `+` also
/// joins texts. `&&`, `||`, `??` and `?` evaluate only what they need.
Value evaluate_prefix(std::string_view text, const Scope& scope, size_t& end);
/// Evaluates the whole of `text`.
Value evaluate(std::string_view text, const Scope& scope);

/// Whether a condition holds: not null, false, 0, "" or an empty list.
bool holds(const Value& value);
/// The value as a graph has it: 5e-06, 4096, true, and a text without quotes.
std::string as_text(const Value& value);

/// The argument as a number. Throws a Wrong that names it `what`.
int64_t integer(const Value& value, std::string_view what);
double number(const Value& value, std::string_view what);

}  // namespace maco::frontend::huggingface
