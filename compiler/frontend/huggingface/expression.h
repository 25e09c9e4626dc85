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

/// What is wrong with an expression, and where in its text.
struct Wrong {
  std::string message;
  size_t at = 0, length = 1;
};

/// Gets the values of its arguments; throws a Wrong, whose place doesn't count, if they don't suit.
using Function = std::function<Value(const std::vector<Value>& arguments)>;

/// The names that an expression may use, those of the blocks around it included.
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

/// The value of the expression at the beginning of `text`, of which `end` becomes the end. Throws a
/// Wrong. From weak to strong: `a ? b : c`, `??` (the right side where the left is null), `||`,
/// `&&`, comparisons, `+ -`, `* / // %`, `! -`, `a.b` (null where an object has no such member),
/// `a[i]`, `f(...)`. `/` of integers is one if it is whole; `//` and `%` floor. `+` also joins
/// texts. `&&`, `||`, `??` and `?` evaluate what they need.
Value evaluate_prefix(std::string_view text, const Scope& scope, size_t& end);
/// The same of the whole of `text`.
Value evaluate(std::string_view text, const Scope& scope);

/// Whether a condition holds: not null, false, 0, "" or an empty list.
bool holds(const Value& value);
/// As a graph has it: 5e-06, 4096, true, and a text without quotes.
std::string as_text(const Value& value);

/// The argument as a number; throws a Wrong that calls it `what`.
int64_t integer(const Value& value, std::string_view what);
double number(const Value& value, std::string_view what);

}  // namespace maco::frontend::huggingface
