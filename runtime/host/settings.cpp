#include "runtime/host/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/manifest.h"
#include "ir/variants.h"

namespace maco::runtime {
namespace {

constexpr const char* kFormat = "settings 1\n";
constexpr const char* kNotGiven = "not given";

std::string short_hash(const std::string& text) { return ir::text_hash(text).substr(0, 8); }

void put(std::string& out, const std::string& text) {
  out += fmt::format("{} {}\n", text.size(), text);
}
// Reads what put wrote, from `at` on.
bool take(const std::string& from, size_t& at, std::string& text) {
  size_t bytes = 0;
  const char* end = from.data() + from.size();
  const auto [used, error] = std::from_chars(from.data() + at, end, bytes);
  if (error != std::errc() || used == end || *used != ' ') return false;
  at = static_cast<size_t>(used - from.data()) + 1;
  if (from.size() - at <= bytes || from[at + bytes] != '\n') return false;
  text = from.substr(at, bytes);
  at += bytes + 1;
  return true;
}

}  // namespace

Settings settings_of(const std::string& kernel_source, const SessionOptions& options) {
  Settings all;
  const ir::VariantsResult split = ir::split_variants(kernel_source);
  if (!split.variants.empty())
    if (const auto manifest = ir::parse_manifest(split.variants[0].kernel).manifest) {
      all.push_back({"the graph",
                     fmt::format("'{}' ({})", manifest->name, short_hash(manifest->graph)), false});
      all.push_back({"what the kernel was compiled with", manifest->options, false});
    }
  all.push_back({"the kernel", short_hash(kernel_source), true});
  all.push_back({"the number of ranks on a GPU", fmt::format("{}", options.ranks_per_gpu), false});
  all.push_back({"peer memory", options.peer_memory.empty() ? "auto" : options.peer_memory, false});
  all.push_back({"a profile", options.profiled_tasks > 0 ? "asked for" : kNotGiven, false});
  all.push_back({"the first epoch", fmt::format("{}", options.first_epoch), false});
  return all;
}

std::string pack(const Settings& settings) {
  std::string text = kFormat;
  for (const Setting& s : settings) {
    put(text, s.name);
    put(text, s.value);
    put(text, s.follows ? "1" : "0");
  }
  return text;
}

std::optional<Settings> unpack(const std::string& text) {
  if (text.rfind(kFormat, 0) != 0) return std::nullopt;
  Settings settings;
  for (size_t at = std::string(kFormat).size(); at < text.size();) {
    Setting s;
    std::string follows;
    if (!take(text, at, s.name) || !take(text, at, s.value) || !take(text, at, follows))
      return std::nullopt;
    s.follows = follows == "1";
    settings.push_back(std::move(s));
  }
  return settings;
}

std::string differences(const std::vector<Settings>& told) {
  std::vector<const Setting*> all;  // of all ranks, each name once
  for (const Settings& settings : told)
    for (const Setting& s : settings)
      if (std::none_of(all.begin(), all.end(), [&](const Setting* a) { return a->name == s.name; }))
        all.push_back(&s);
  std::string text;
  for (const Setting* s : all) {
    if (s->follows && !text.empty()) continue;
    std::vector<std::pair<std::string, std::vector<int>>> values;  // with the ranks that have each
    for (size_t r = 0; r < told.size(); ++r) {
      const auto own = std::find_if(told[r].begin(), told[r].end(),
                                    [&](const Setting& t) { return t.name == s->name; });
      const std::string value = own == told[r].end() ? kNotGiven : own->value;
      auto at = std::find_if(values.begin(), values.end(),
                             [&](const auto& v) { return v.first == value; });
      if (at == values.end()) at = values.insert(at, {value, {}});
      at->second.push_back(static_cast<int>(r));
    }
    if (values.size() < 2) continue;
    text += (text.empty() ? "" : "; ") + s->name + " is ";
    for (size_t i = 0; i < values.size(); ++i)
      text += fmt::format("{}{} on {}", i == 0 ? "" : ", ", values[i].first,
                          ranks_text(values[i].second));
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

}  // namespace maco::runtime
