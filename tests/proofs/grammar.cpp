#include "tests/proofs/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace maco::proofs {
namespace {

/// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(read_line(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

std::string part(const Line& line, size_t begin, size_t end) {
  return line.text.substr(begin, end - begin);
}

void unique(std::map<std::string, std::vector<std::string>>& lists) {
  for (auto& [name, list] : lists) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
}

bool is_option(const Field& f) { return f.type.starts_with("option "); }

}  // namespace

void Mutator::Values::add(const Line& line) {
  for (const Field& f : line.fields) {
    const std::string text = part(line, f.begin, f.end);
    by_type[f.type].push_back(text);
    by_key[f.type + "\n" + f.key].push_back(text);
  }
}
void Mutator::Values::finish() {
  unique(by_type);
  unique(by_key);
}

Mutator::Mutator(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    texts_.push_back(lines_of(text));
    Values& own = own_.emplace_back();
    for (const Line& line : texts_.back()) {
      own.add(line);
      all_.add(line);
    }
    own.finish();
  }
  all_.finish();
}

/// One or more mutations of one text.
class Mutator::Change {
 public:
  Change(const Mutator& m, size_t subject, uint64_t seed)
      : m_(m),
        own_(m.own_[subject]),
        random_(seed * 0x100000001b3u + subject),
        lines_(m.texts_[subject]) {}

  Mutant run() {
    const bool pair = random_.one_in(6);
    std::string kind;
    for (int left = pair ? 2 : 1; left > 0;)
      if (auto made = once()) {
        kind = std::move(*made);
        --left;
        // Two faults of one line may hide each other.
        only_ = random_.one_in(2) && last_ < lines_.size() ? last_ : kAny;
      }
    Mutant mutant;
    for (const Line& line : lines_) mutant.text += line.text + "\n";
    mutant.kind = pair ? "pair" : kind;
    mutant.place = place_;
    mutant.changes = std::move(changes_);
    return mutant;
  }

 private:
  /// A mutation and its kind; nothing if it changed nothing.
  std::optional<std::string> once() {
    const size_t choice = random_.below(100);
    if (choice < 62) return field();
    if (choice < 84) return item();
    const size_t line = a_line();
    place_ = lines_[line].entity;
    last_ = line;
    if (choice < 91) {
      const size_t other = random_.below(lines_.size());
      if (lines_[line].text == lines_[other].text) return std::nullopt;
      std::swap(lines_[line], lines_[other]);
      note(std::min(line, other), lines_[std::max(line, other)].text);
      note(std::max(line, other), lines_[std::min(line, other)].text);
      return "lines swapped";
    }
    const auto place = lines_.begin() + static_cast<std::ptrdiff_t>(line);
    if (choice < 97) {
      changes_.push_back(fmt::format("{}: {}\n  -> dropped", line + 1, lines_[line].text));
      lines_.erase(place);
      return "line dropped";
    }
    changes_.push_back(fmt::format("{}: {}\n  -> doubled", line + 1, lines_[line].text));
    lines_.insert(place, Line(lines_[line]));
    return "line doubled";
  }

  bool may_change(size_t line) const { return only_ == kAny || only_ == line; }
  /// Half of the time any, else of an entity that has as good a chance as all others.
  size_t a_line() {
    if (only_ != kAny) return only_;
    if (random_.one_in(2)) return random_.below(lines_.size());
    std::map<std::string, std::vector<size_t>> by_entity;
    for (size_t i = 0; i < lines_.size(); ++i) by_entity[lines_[i].entity].push_back(i);
    return random_.of(any_of(by_entity));
  }
  template <class T>
  const std::vector<T>& any_of(const std::map<std::string, std::vector<T>>& lists) {
    auto it = lists.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_.below(lists.size())));
    return it->second;
  }

  void note(size_t line, const std::string& before) {
    changes_.push_back(fmt::format("{}: {}\n  -> {}", line + 1, before, lines_[line].text));
  }
  void rewrite(size_t line, std::string text) {
    last_ = line;
    const std::string before = std::move(lines_[line].text);
    lines_[line] = read_line(std::move(text));
    note(line, before);
  }

  std::optional<std::string> field() {
    using Place = std::pair<size_t, size_t>;  // line, field
    std::vector<Place> places;
    std::map<std::string, std::vector<Place>> by_key;
    for (size_t l = 0; l < lines_.size(); ++l)
      for (size_t f = 0; may_change(l) && f < lines_[l].fields.size(); ++f) {
        places.emplace_back(l, f);
        const Field& field = lines_[l].fields[f];
        by_key[field.type + "\n" + field.key].emplace_back(l, f);
      }
    if (places.empty()) return std::nullopt;
    const auto [l, f] = random_.of(random_.one_in(2) ? places : any_of(by_key));
    const Line& line = lines_[l];
    const Field& field = line.fields[f];
    const std::string old = part(line, field.begin, field.end);
    const std::optional<std::string> made = other_value(field, old);
    if (!made || *made == old) return std::nullopt;
    std::string kind = is_option(field) ? made->empty() ? "option left out"
                                          : old.empty() ? "option put in"
                                                        : "option replaced"
                                        : field.type;
    place_ = field.key;
    std::string text = line.text;
    text.replace(field.begin, field.end - field.begin, *made);
    rewrite(l, std::move(text));
    return kind;
  }

  std::optional<std::string> other_value(const Field& field, const std::string& old) {
    if (is_option(field) && !old.empty() && random_.one_in(2)) return "";
    int64_t n = 0;
    if (field.type == "number" && random_.one_in(3) &&
        std::from_chars(old.data(), old.data() + old.size(), n).ec == std::errc()) {
      constexpr int64_t kFar = 4096;
      const int64_t values[] = {n + 1, n - 1, n + 1, n - 1, 0, n * 2, n + kFar};
      return fmt::to_string(values[random_.below(std::size(values))]);
    }
    const Values& values = random_.one_in(3) ? m_.all_ : own_;
    const bool same_place = !is_option(field) && random_.one_in(2);
    const auto& lists = same_place ? values.by_key : values.by_type;
    const auto list = lists.find(same_place ? field.type + "\n" + field.key : field.type);
    if (list == lists.end() || list->second.empty()) return std::nullopt;
    return random_.of(list->second);
  }

  std::optional<std::string> item() {
    using Place = std::pair<size_t, size_t>;  // line, list
    std::map<std::string, std::vector<Place>> by_type;
    for (size_t l = 0; l < lines_.size(); ++l)
      for (size_t i = 0; may_change(l) && i < lines_[l].lists.size(); ++i)
        by_type[lines_[l].lists[i].type].emplace_back(l, i);
    if (by_type.empty()) return std::nullopt;
    const auto [l, which] = random_.of(any_of(by_type));
    const Line& line = lines_[l];
    const List* list = &line.lists[which];
    if (list->items.empty()) return std::nullopt;
    size_t item = random_.below(list->items.size());
    std::string text = line.text, kind = list->type;
    const size_t choice = random_.below(4);
    if (choice < 2) {
      kind += " dropped";
      while (list->items.size() == 1 && list->parent >= 0) {
        item = list->item;
        list = &line.lists[static_cast<size_t>(list->parent)];
      }
      const auto& items = list->items;
      const size_t begin = items.size() == 1 ? list->begin
                           : item > 0        ? items[item - 1].second
                                             : items[0].first;
      const size_t end = items.size() == 1 ? list->end
                         : item > 0        ? items[item].second
                                           : items[1].first;
      text.erase(begin, end - begin);
    } else if (choice == 2) {
      kind += " doubled";
      const auto [begin, end] = list->items[item];
      text.insert(end, list->separator + part(line, begin, end));
    } else {
      if (list->items.size() < 2) return std::nullopt;
      kind += " swapped";
      item = std::min(item, list->items.size() - 2);
      const auto [begin, end] = list->items[item];
      const auto [next, stop] = list->items[item + 1];
      text = text.substr(0, begin) + part(line, next, stop) + part(line, end, next) +
             part(line, begin, end) + text.substr(stop);
    }
    if (text == line.text) return std::nullopt;
    place_ = line.entity;
    rewrite(l, std::move(text));
    return kind;
  }

  const Mutator& m_;
  const Values& own_;
  Random random_;
  std::vector<Line> lines_;
  std::vector<std::string> changes_;
  std::string place_;
  static constexpr size_t kAny = ~size_t{0};
  size_t last_ = kAny;  // the line that was changed
  size_t only_ = kAny;  // the line that may be changed
};

Mutant Mutator::make(size_t subject, uint64_t seed) const {
  return Change(*this, subject, seed).run();
}

}  // namespace maco::proofs
