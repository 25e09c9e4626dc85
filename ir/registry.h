// Tables of entities by name: those that are built in, and those that the process registers.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ir/check.h"

namespace maco::ir {

/// May be used by several threads at once. What find() returned stays valid: nothing is ever
/// removed or changed.
template <class Entity>
class Registry {
 public:
  /// `name`: the member that entities are found by.
  Registry(std::string Entity::* name, std::vector<Entity> built_in) : name_(name) {
    for (Entity& e : built_in) MACO_CHECK(add(e), e.*name_);
  }
  /// False, and nothing changes, if there is one of that name.
  bool add(Entity entity) {
    const std::unique_lock lock(mutex_);
    if (by_name_.count(entity.*name_) > 0) return false;
    entities_.push_back(std::move(entity));
    by_name_.emplace(entities_.back().*name_, &entities_.back());
    return true;
  }
  /// nullptr if there is none.
  const Entity* find(std::string_view name) const {
    const std::shared_lock lock(mutex_);
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  /// Those built in, then the others as they came.
  std::vector<Entity> all() const {
    const std::shared_lock lock(mutex_);
    return {entities_.begin(), entities_.end()};
  }

 private:
  std::string Entity::* name_;
  mutable std::shared_mutex mutex_;
  std::deque<Entity> entities_;  // whose elements stay where they are
  std::map<std::string_view, const Entity*> by_name_;
};

}  // namespace maco::ir
