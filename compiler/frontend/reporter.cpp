#include "compiler/frontend/reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace maco::frontend {

namespace {

std::string without_numbers(const std::string& text) {
  std::string result;
  for (char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      result += c;
    } else if (result.empty() || result.back() != '#') {
      if (!result.empty() && result.back() == '-') result.pop_back();
      result += '#';
    }
  }
  return result;
}

}  // namespace

bool Reporter::add(ir::Severity severity, ir::Loc loc, std::string message) {
  if (severity == ir::Severity::Error) ++errors_;
  std::vector<size_t>& alike = known_[{loc.file, loc.line, loc.column, without_numbers(message)}];
  for (size_t i : alike) {
    Group& group = groups_[i];
    const bool other_iteration = loc.context != group.head.loc.context;
    if (!other_iteration && message != group.text) continue;
    if (other_iteration && loc.context != group.last_context) {
      ++group.more;
      group.last_context = loc.context;
    }
    dropping_ = true;
    return false;
  }
  alike.push_back(groups_.size());
  groups_.push_back({{severity, loc, message}, message, {}, loc.context, 0});
  dropping_ = false;
  return true;
}

bool Reporter::take(ir::Loc loc, std::string message, const Hint& hint) {
  if (!add(ir::Severity::Error, loc, std::move(message))) return false;
  if (hint) append(hint());
  return true;
}
bool Reporter::warning(ir::Loc loc, std::string message) {
  return add(ir::Severity::Warning, loc, std::move(message));
}
void Reporter::append(const std::string& hint) {
  if (!dropping_ && !groups_.empty()) groups_.back().head.message += hint;
}
void Reporter::note(ir::Loc loc, std::string message) {
  if (!dropping_ && !groups_.empty())
    groups_.back().notes.push_back({ir::Severity::Note, loc, std::move(message)});
}

void Reporter::take(const std::vector<ir::Diagnostic>& list) {
  for (const ir::Diagnostic& d : list) {
    if (d.severity == ir::Severity::Note)
      note(d.loc, d.message);
    else
      add(d.severity, d.loc, d.message);
  }
}

void Reporter::flush(ir::Diagnostics& diagnostics) {
  const auto place = [](const Group& g) {
    const ir::Loc& loc = g.head.loc;
    const int32_t line = loc.known() ? loc.line : std::numeric_limits<int32_t>::max();
    return std::tuple(loc.file, line, loc.column);
  };
  std::stable_sort(groups_.begin(), groups_.end(),
                   [&](const Group& a, const Group& b) { return place(a) < place(b); });
  for (const Group& g : groups_) {
    if (g.head.severity == ir::Severity::Error)
      diagnostics.error(g.head.loc, g.head.message);
    else
      diagnostics.warning(g.head.loc, g.head.message);
    for (const ir::Diagnostic& n : g.notes) diagnostics.note(n.loc, n.message);
    if (g.more > 0)
      diagnostics.note(
          {}, fmt::format("the same in {} more iteration{}", g.more, g.more == 1 ? "" : "s"));
  }
  groups_.clear();
  known_.clear();
}

}  // namespace maco::frontend
