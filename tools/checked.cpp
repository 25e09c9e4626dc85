#include "tools/checked.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

namespace maco::tools {

void Checked::add(int rank, const reference::CheckResult& result) {
  Checked one;
  one.ranks = 1;
  one.worst_rank = rank;
  one.error = result.error;
  one.bound = result.bound;
  one.elements = result.elements;
  one.not_finite = result.not_finite;
  one.tied = result.tied;
  add(one);
}

void Checked::add(const Checked& others) {
  if (ranks == 0 || others.error > error) {
    worst_rank = others.worst_rank;
    error = others.error;
    bound = others.bound;
  }
  ranks += others.ranks;
  elements += others.elements;
  not_finite += others.not_finite;
  tied += others.tied;
}

std::string to_line(const std::string& tensor, const Checked& c) {
  reference::CheckResult all;
  all.error = c.error;
  all.bound = c.bound;
  all.elements = c.elements;
  all.not_finite = c.not_finite;
  all.tied = c.tied;
  return fmt::format("'{}': {}", tensor, reference::success_text(all, c.ranks, c.worst_rank));
}

std::string pack(const std::vector<Checked>& all) {
  std::string text;
  for (const Checked& c : all)
    text += fmt::format("{} {} {} {} {} {} {}\n", c.ranks, c.worst_rank, c.error, c.bound,
                        c.elements, c.not_finite, c.tied);
  return text;
}

bool unpack(const std::string& text, std::vector<Checked>& all) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Checked c;
    std::string error, bound;  // streams don't read infinities
    if (!(words >> c.ranks >> c.worst_rank >> error >> bound >> c.elements >> c.not_finite >>
          c.tied))
      return false;
    c.error = std::strtod(error.c_str(), nullptr);
    c.bound = std::strtod(bound.c_str(), nullptr);
    all.push_back(c);
  }
  return true;
}

}  // namespace maco::tools
