#include "compiler/codegen/emitter.h"

#include <algorithm>

namespace maco::codegen {

namespace {

// Columns of the last line.
size_t width_of(std::string_view text) {
  const size_t line = text.rfind('\n');
  return line == text.npos ? text.size() : text.size() - line - 1;
}

}  // namespace

std::string filled(size_t indent, std::string open, const std::vector<std::string>& items,
                   std::string_view close, std::string_view separator) {
  std::string text = std::move(open);
  const size_t column = indent + width_of(text);
  size_t at = column;
  for (size_t i = 0; i < items.size(); ++i) {
    const bool last = i + 1 == items.size();
    const size_t width = items[i].size() + (last ? close.size() : separator.size());
    const size_t space = i > 0 ? 1 : 0;
    if (i > 0 && at + space + width > kLineWidth) {
      text += '\n' + std::string(column - indent, ' ');
      at = column;
    } else if (i > 0) {
      text += ' ';
      at += 1;
    }
    text += items[i];
    if (!last) text += separator;
    at += width;
  }
  return text.append(close);
}

std::string function_text(size_t indent, const std::string& declaration,
                          const std::vector<std::string>& parameters,
                          const std::vector<std::string>& statements, std::string_view behind) {
  const std::string head =
      filled(indent, declaration + "(", parameters, fmt::format(") {}{{", behind));
  if (statements.size() == 1 && statements[0].find('\n') == std::string::npos &&
      head.find('\n') == std::string::npos) {
    std::string line = fmt::format("{} {} }}", head, statements[0]);
    if (indent + line.size() <= kLineWidth) return line + '\n';
  }
  std::string text = head + '\n';
  for (const std::string& s : statements) {
    text += "  ";
    for (char c : s) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
    text += '\n';
  }
  return text + "}\n";
}

void Emitter::raw(std::string_view text) {
  const size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(spaces);
  const std::string indent(text.empty() ? 0 : indent_ + spaces, ' ');
  const bool is_comment = text.substr(0, 2) == "//";
  const bool wide = formats_ && !is_comment && indent.size() + text.size() > kLineWidth;
  if (wide) text_ += indent + kFormatOff + '\n';
  text_.append(indent).append(text) += '\n';
  if (wide) text_ += indent + kFormatOn + '\n';
}

void Emitter::lines(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    raw(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace maco::codegen
