#include "runtime/host/outcome.h"

#include <fmt/format.h>

#include <cstring>

namespace maco::runtime {
namespace {

std::string text_of(const LaunchValues& values) {
  std::string text;
  for (const auto& [name, value] : values) text += fmt::format("{} = {}\n", name, value);
  return text;
}
std::string other_values(size_t rank, int than) {
  return fmt::format("rank {} was launched with other dims or scalars than rank {}", rank, than);
}

}  // namespace

void EnqueuedValues::add(const LaunchValues& values, const LaunchAddresses& addresses) {
  // The offset and prime of FNV-1a.
  if (launches_++ == 0) hash_ = 14695981039346656037u;
  const auto mix = [this](const void* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i)
      hash_ = (hash_ ^ static_cast<const unsigned char*>(bytes)[i]) * 1099511628211u;
  };
  const auto mix_name = [&](const std::string& name) { mix(name.c_str(), name.size() + 1); };
  for (const auto& [name, value] : values) {
    mix_name(name);
    mix(&value, sizeof value);
  }
  for (const auto& [name, all] : addresses) mix_name(name);
  mix("", 1);  // no name
}

LaunchValues EnqueuedValues::all() const {
  if (launches_ == 0) return {};
  return {{"(launches)", launches_}, {"(values)", static_cast<int64_t>(hash_)}};  // no names
}

Status exchange_outcomes(Group& group, const Outcome& mine, const LaunchValues& values,
                         uint64_t patience_ms, std::vector<Outcome>& all, std::string& story) {
  struct Numbers {
    Report report;
    double us;
    uint32_t left, numbered;
  };
  constexpr size_t kNumbers = sizeof(Numbers);
  const Numbers own{mine.report, mine.us, mine.left, mine.numbered ? 1u : 0u};
  std::string message(reinterpret_cast<const char*>(&own), sizeof own);
  message += text_of(values) + '\0' + mine.story;
  std::vector<std::string> messages;
  MACO_TRY(group.exchange(message, messages, patience_ms, Group::Call::Outcome));
  all.assign(messages.size(), {});
  story.clear();
  std::string first;
  const auto add = [&](const std::string& line) { story += (story.empty() ? "" : "\n") + line; };
  for (size_t r = 0; r < all.size(); ++r) {
    if (messages[r].size() < kNumbers) return Status::failure("a rank sent half a message");
    Numbers numbers{};
    std::memcpy(&numbers, messages[r].data(), sizeof numbers);
    all[r] = {numbers.report, numbers.us, numbers.numbered != 0, numbers.left, ""};
    const std::string rest = messages[r].substr(kNumbers);
    const size_t end = std::min(rest.find('\0'), rest.size());
    // Compared with rank 0's, so that all processes say the same.
    if (r == 0) first = rest.substr(0, end);
    if (rest.substr(0, end) != first) add(other_values(r, 0));
    if (end + 1 >= rest.size()) continue;
    all[r].story = rest.substr(end + 1);
    const bool named = all[r].story.rfind("rank ", 0) == 0;
    add(named ? all[r].story : fmt::format("rank {}: {}", r, all[r].story));
  }
  return {};
}

Status agree_on_values(Group& group, const LaunchValues& values, const Status& mine) {
  std::vector<std::string> all;
  MACO_TRY(group.agree(mine));
  const std::string given = text_of(values);
  MACO_TRY(group.exchange(given, all, Group::kPatienceMs, Group::Call::Values));
  // Compared with rank 0's, so that all processes say the same.
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0]) return Status::failure(other_values(r, 0));
  return {};
}

}  // namespace maco::runtime
