// Finds an entity of a vector by its name.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace maco::ir {

/// Caches the places of the names in a vector, so that a search takes constant time. Names must
/// differ. The vector may change in any way between two searches, as each answer is checked against
/// it. A search for a missing name takes linear time. Several threads may search at once. A copy
/// starts empty.
class NameIndex {
 public:
  NameIndex() = default;
  NameIndex(const NameIndex&) {}
  NameIndex& operator=(const NameIndex&) { return *this; }

  /// The place of the entity of that name among `entities`.
  template <class Entity>
  std::optional<size_t> find(const std::vector<Entity>& entities, std::string_view name) const {
    const std::lock_guard lock(mutex_);
    if (known_ > entities.size()) forget();
    for (; known_ < entities.size(); ++known_) places_.emplace(hash(entities[known_].name), known_);
    const auto [begin, end] = places_.equal_range(hash(name));
    std::optional<size_t> found;
    for (auto it = begin; it != end; ++it)
      if (entities[it->second].name == name && (!found || it->second < *found)) found = it->second;
    if (found) return found;
    for (size_t i = 0; i < entities.size(); ++i)
      if (entities[i].name == name) {
        forget();
        return i;
      }
    return std::nullopt;
  }

 private:
  static size_t hash(std::string_view name) { return std::hash<std::string_view>()(name); }
  void forget() const {
    places_.clear();
    known_ = 0;
  }

  mutable std::mutex mutex_;
  mutable std::unordered_multimap<size_t, size_t> places_;  // by hash of the name
  mutable size_t known_ = 0;                                // how many entities are in `places_`
};

}  // namespace maco::ir
