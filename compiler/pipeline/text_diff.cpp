#include "compiler/pipeline/text_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace maco::passes {

namespace {

std::vector<std::string_view> lines_of(const std::string& text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// For each line whether `other` contains fewer of it.
std::vector<bool> only_in(const std::vector<std::string_view>& lines,
                          const std::vector<std::string_view>& other) {
  std::unordered_map<std::string_view, size_t> there;
  for (std::string_view line : other) ++there[line];
  std::vector<bool> only;
  for (std::string_view line : lines) {
    const auto found = there.find(line);
    only.push_back(found == there.end() || found->second == 0);
    if (!only.back()) --found->second;
  }
  return only;
}

}  // namespace

std::string diff_lines(const std::string& before, const std::string& after, size_t most) {
  const auto old_lines = lines_of(before), new_lines = lines_of(after);
  const auto removed = only_in(old_lines, new_lines), added = only_in(new_lines, old_lines);
  std::string text;
  size_t told = 0, changed = 0;
  const auto tell = [&](char sign, std::string_view line) {
    ++changed;
    if (told >= most) return;
    ++told;
    text += fmt::format("{} {}\n", sign, line);
  };
  size_t i = 0, j = 0;
  while (i < old_lines.size() || j < new_lines.size()) {
    while (i < old_lines.size() && removed[i]) tell('-', old_lines[i++]);
    while (j < new_lines.size() && added[j]) tell('+', new_lines[j++]);
    if (i < old_lines.size()) ++i;
    if (j < new_lines.size()) ++j;
  }
  if (changed == 0) return "(lines in another order)\n";
  if (told < changed) text += fmt::format("and {} more\n", changed - told);
  return text;
}

}  // namespace maco::passes
