#include "ir/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "ir/check.h"

namespace maco::ir {

int32_t Diagnostics::add_file(std::string name, std::string text) {
  File file{std::move(name), std::move(text), {0}};
  for (size_t i = 0; i < file.text.size(); ++i)
    if (file.text[i] == '\n') file.line_starts.push_back(i + 1);
  files_.push_back(std::move(file));
  return static_cast<int32_t>(files_.size()) - 1;
}

const std::string& Diagnostics::file_name(int32_t file) const {
  MACO_CHECK(file >= 0 && static_cast<size_t>(file) < files_.size(), "no such file");
  return files_[static_cast<size_t>(file)].name;
}

const std::string& Diagnostics::file_text(int32_t file) const {
  MACO_CHECK(file >= 0 && static_cast<size_t>(file) < files_.size(), "no such file");
  return files_[static_cast<size_t>(file)].text;
}

int32_t Diagnostics::add_context(std::string text, int32_t outer) {
  contexts_.push_back({std::move(text), outer});
  return static_cast<int32_t>(contexts_.size()) - 1;
}

void Diagnostics::error(Loc loc, std::string message) {
  list_.push_back({Severity::Error, loc, std::move(message)});
  ++errors_;
}

void Diagnostics::warning(Loc loc, std::string message) {
  list_.push_back({Severity::Warning, loc, std::move(message)});
}

void Diagnostics::note(Loc loc, std::string message) {
  list_.push_back({Severity::Note, loc, std::move(message)});
}

void Diagnostics::clear() {
  list_.clear();
  errors_ = 0;
}

std::string without_names(std::string_view message) {
  const auto is_word = [&](size_t i) {
    return i < message.size() && (std::isalnum(static_cast<unsigned char>(message[i])) != 0);
  };
  std::string kind;
  for (size_t i = 0; i < message.size(); ++i) {
    kind += message[i];
    // An apostrophe has letters on both sides.
    if (message[i] != '\'' || (i > 0 && is_word(i - 1) && is_word(i + 1))) continue;
    const size_t close = message.find('\'', i + 1);
    if (close == std::string_view::npos) continue;
    kind += '\'';
    i = close;
  }
  return kind;
}

namespace {

std::string kind_of(std::string_view message) {
  std::string kind;
  for (const char c : without_names(message)) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || kind.empty() || kind.back() != '#') kind += digit ? '#' : c;
  }
  return kind;
}

/// Warnings of one kind, or warnings at one place in a repeat.
struct Alike {
  size_t last = 0;  // index of the last one that is shown
  int64_t shown = 0, more = 0;
};

}  // namespace

std::vector<Diagnostic> Diagnostics::limited(int most) const {
  if (most <= 0) return list_;
  std::map<std::string, Alike> kinds;
  std::map<std::tuple<std::string, int32_t, int32_t, int32_t>, Alike> places;
  std::vector<bool> shown(list_.size(), true);
  bool dropping = false;
  for (size_t i = 0; i < list_.size(); ++i) {
    const Diagnostic& d = list_[i];
    if (d.severity == Severity::Warning) {
      const std::string kind = kind_of(d.message);
      Alike& at_place = places[{kind, d.loc.file, d.loc.line, d.loc.column}];
      Alike& of_kind = kinds[kind];
      const bool repeated = d.loc.context >= 0 && at_place.shown > 0;
      dropping = repeated || of_kind.shown == most;
      if (dropping) {
        ++(repeated ? at_place : of_kind).more;
      } else {
        at_place.last = of_kind.last = i;
        ++at_place.shown, ++of_kind.shown;
      }
    } else if (d.severity == Severity::Error) {
      dropping = false;
    }
    shown[i] = !dropping;
  }
  std::map<size_t, std::vector<std::string>> notes;  // by the warning that they belong to
  for (const auto& [place, a] : places)
    if (a.more > 0)
      notes[a.last].push_back(
          fmt::format("the same in {} more iteration{}", a.more, a.more == 1 ? "" : "s"));
  for (const auto& [kind, a] : kinds)
    if (a.more > 0)
      notes[a.last].push_back(
          fmt::format("and {} more warning{} like this", a.more, a.more == 1 ? "" : "s"));
  std::vector<Diagnostic> list;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (!shown[i]) continue;
    list.push_back(list_[i]);
    const auto found = notes.find(i);
    if (found == notes.end()) continue;
    // Insert behind the warning's notes.
    while (i + 1 < list_.size() && list_[i + 1].severity == Severity::Note)
      list.push_back(list_[++i]);
    for (const std::string& note : found->second) list.push_back({Severity::Note, {}, note});
  }
  return list;
}

namespace {

constexpr size_t kTabStop = 4;
constexpr size_t kMaxWidth = 100;  // columns of source shown
constexpr std::string_view kCut = "...";

/// A source line as a terminal shows it: tabs are expanded, unprintable characters are replaced,
/// and each code point is one cell.
struct Cells {
  std::vector<std::string> cells;
  std::vector<size_t> cell_of_byte;  // one more than bytes
};

Cells to_cells(std::string_view line) {
  Cells result;
  auto continuation = [&](size_t i) {
    return i < line.size() && (static_cast<unsigned char>(line[i]) & 0xc0) == 0x80;
  };
  for (size_t i = 0; i < line.size();) {
    const auto c = static_cast<unsigned char>(line[i]);
    size_t bytes = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    for (size_t k = 1; k < bytes; ++k)
      if (!continuation(i + k)) bytes = 1;
    result.cell_of_byte.insert(result.cell_of_byte.end(), bytes, result.cells.size());
    if (c == '\t') {
      do result.cells.push_back(" ");
      while (result.cells.size() % kTabStop != 0);
    } else if (c < 0x20 || c == 0x7f || (bytes == 1 && c >= 0x80) ||
               (c == 0xc2 && bytes == 2 && static_cast<unsigned char>(line[i + 1]) < 0xa0)) {
      result.cells.push_back("?");
    } else {
      result.cells.emplace_back(line.substr(i, bytes));
    }
    i += bytes;
  }
  result.cell_of_byte.push_back(result.cells.size());
  return result;
}

struct Colours {
  std::string_view bold, error, warning, note, caret, off;
};

/// The line with its number, and the caret line below it.
std::string excerpt(std::string_view line, const Loc& loc, const Colours& colours) {
  const Cells shown = to_cells(line);
  const size_t from_byte = std::min(static_cast<size_t>(std::max(loc.column, 1)) - 1, line.size());
  const size_t to_byte =
      std::min(from_byte + static_cast<size_t>(std::max(loc.length, 1)), line.size());
  const size_t from = shown.cell_of_byte[from_byte];
  const size_t to = std::max(from + 1, shown.cell_of_byte[to_byte]);

  // A window of kMaxWidth cells that begins a third of its width before the caret.
  size_t begin = 0, end = shown.cells.size();
  if (end > kMaxWidth) {
    begin = from > kMaxWidth / 3 ? from - kMaxWidth / 3 : 0;
    begin = std::min(begin, end - kMaxWidth);
    end = std::min(end, begin + kMaxWidth);
  }
  std::string source, carets;
  if (begin > 0) source += kCut;
  const size_t indent = source.size() + from - begin;
  for (size_t i = begin; i < end; ++i) source += shown.cells[i];
  if (end < shown.cells.size()) source += kCut;
  while (!source.empty() && source.back() == ' ') source.pop_back();
  const size_t last = std::min(to, std::max(end, from + 1));
  carets = std::string(indent, ' ') + std::string(colours.caret) + "^" +
           std::string(last - from - 1, '~') + std::string(colours.off);
  return fmt::format("{:>5} |{}{}\n{:>5} | {}\n", loc.line, source.empty() ? "" : " ", source, "",
                     carets);
}

}  // namespace

std::string Diagnostics::render(bool color, int most, int most_warnings) const {
  const Colours colours =
      color ? Colours{"\033[1m", "\033[1;31m", "\033[1;35m", "\033[1;36m", "\033[1;32m", "\033[0m"}
            : Colours{};
  std::string out;
  int shown = 0;
  for (const Diagnostic& d : limited(most_warnings)) {
    if (d.severity == Severity::Error && most > 0 && ++shown > most) break;
    const Loc& loc = d.loc;
    const bool has_file = loc.file >= 0 && static_cast<size_t>(loc.file) < files_.size();
    if (has_file) {
      const std::string& file = files_[static_cast<size_t>(loc.file)].name;
      out += colours.bold;
      out += loc.known() ? fmt::format("{}:{}:{}: ", file, loc.line, loc.column) : file + ": ";
      out += colours.off;
    }
    const auto [word, colour] = d.severity == Severity::Error ? std::pair("error", colours.error)
                                : d.severity == Severity::Warning
                                    ? std::pair("warning", colours.warning)
                                    : std::pair("note", colours.note);
    out += fmt::format("{}{}:{} {}{}{}\n", colour, word, colours.off, colours.bold, d.message,
                       colours.off);
    if (has_file && loc.known()) {
      const File& file = files_[static_cast<size_t>(loc.file)];
      const auto row = static_cast<size_t>(loc.line) - 1;
      if (row < file.line_starts.size()) {
        const size_t begin = file.line_starts[row];
        size_t end =
            row + 1 < file.line_starts.size() ? file.line_starts[row + 1] - 1 : file.text.size();
        if (end > begin && file.text[end - 1] == '\r') --end;
        out += excerpt(std::string_view(file.text).substr(begin, end - begin), loc, colours);
      }
    }
    for (int32_t c = loc.context; c >= 0 && static_cast<size_t>(c) < contexts_.size();
         c = contexts_[static_cast<size_t>(c)].outer)
      out += fmt::format("{:>5} = {}\n", "", contexts_[static_cast<size_t>(c)].text);
  }
  if (shown > most && most > 0)
    out += fmt::format("and {} more error{}\n", errors_ - most, errors_ - most == 1 ? "" : "s");
  return out;
}

namespace {

/// Counts insertions, deletions, substitutions and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t best_distance = 0;
  if (word.size() > 64) return "";
  for (const std::string& candidate : candidates) {
    const size_t limit = std::max(word.size(), candidate.size()) / 3;
    if (candidate.empty() || candidate == word || candidate.size() > 64) continue;
    const size_t distance = edit_distance(lower(word), lower(candidate));
    if (distance <= limit && (best == nullptr || distance < best_distance)) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : fmt::format("; did you mean '{}'?", *best);
}

}  // namespace maco::ir
