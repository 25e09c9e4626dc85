// Writes C++ as Clang's formatter lays it out (.clang-format; tests/lint/emitted_test.py), so that
// it looks the same whether or not there is a Clang.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maco::codegen {

inline constexpr size_t kLineWidth = 100;
inline constexpr const char *kFormatOff = "// clang-format off", *kFormatOn = "// clang-format on";

/// "open a, b, c close" behind `indent` columns: in one line where that fits, else as many items a
/// line as fit, below the first. `separator`: "," or an operator. No newline at its end.
std::string filled(size_t indent, std::string open, const std::vector<std::string>& items,
                   std::string_view close, std::string_view separator = ",");

/// A function's text behind `indent` columns, which it doesn't contain: a lone statement that fits
/// stays in its line. `parameters`: with their types; `behind` them: "const " or nothing.
/// Statements may have several lines, laid out for a body that lies two columns to the right.
std::string function_text(size_t indent, const std::string& declaration,
                          const std::vector<std::string>& parameters,
                          const std::vector<std::string>& statements, std::string_view behind = "");

class Emitter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  /// A line as it is; "" is a blank line. One that is too wide is kept from the formatter.
  void raw(std::string_view text);
  /// Several lines, each as raw() has it.
  void lines(std::string_view text);
  /// Several lines, as they are.
  void block(std::string_view text) {
    text_.append(text);
    if (!text.empty() && text.back() != '\n') text_ += '\n';
  }
  void function(const std::string& declaration, const std::vector<std::string>& parameters,
                const std::vector<std::string>& statements) {
    lines(function_text(indent(), declaration, parameters, statements));
  }
  /// Columns to the left of what is written.
  size_t indent() const { return indent_; }

  /// Opens a scope that ends with `close` when the returned object dies.
  class Scope {
   public:
    Scope(Emitter& e, std::string close, size_t columns, bool formats = true)
        : e_(e), close_(std::move(close)), columns_(columns), formats_(e.formats_) {
      e_.indent_ += columns_;
      e_.formats_ = formats_ && formats;
    }
    ~Scope() {
      e_.indent_ -= columns_;
      e_.raw(close_);
      if (formats_ && !e_.formats_) e_.raw(kFormatOn);
      e_.formats_ = formats_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Emitter& e_;
    std::string close_;
    size_t columns_;
    bool formats_;  // as it was before
  };
  Scope scope(const std::string& open, std::string close = "}") {
    raw(open + " {");
    return Scope(*this, std::move(close), 2);
  }
  Scope name_space(const std::string& name) {
    raw("namespace " + name + " {");
    return Scope(*this, "}  // namespace " + name, 0);
  }
  /// An array of many numbers, which are denser than the formatter would have them.
  Scope table(const std::string& open) {
    raw(kFormatOff);
    raw(open + " {");
    return Scope(*this, "};", 2, false);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  size_t indent_ = 0;
  bool formats_ = true;  // what is written is for the formatter, too
};

}  // namespace maco::codegen
