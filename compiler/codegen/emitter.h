// Writes C++ with indentation by scope.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace maco::codegen {

class Emitter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  /// A line as it is; "" is a blank line.
  void raw(std::string_view text) {
    if (!text.empty()) text_.append(static_cast<size_t>(2 * depth_), ' ');
    text_.append(text);
    text_ += '\n';
  }
  /// Several lines, as they are.
  void block(std::string_view text) {
    text_.append(text);
    if (!text.empty() && text.back() != '\n') text_ += '\n';
  }
  /// Opens a scope that ends with `close` when the returned object dies.
  class Scope {
   public:
    Scope(Emitter& e, std::string close) : e_(e), close_(std::move(close)) { ++e_.depth_; }
    ~Scope() {
      --e_.depth_;
      e_.raw(close_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Emitter& e_;
    std::string close_;
  };
  Scope scope(const std::string& open, std::string close = "}") {
    raw(open + " {");
    return Scope(*this, std::move(close));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace maco::codegen
