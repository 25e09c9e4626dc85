// Tables of entities by name: those that are built in, and those that the process registers.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ir/check.h"

namespace maco::ir {

/// A table of entities that several threads may use at once. What find() returned stays valid:
/// nothing is ever removed.
template <class Entity>
class Registry {
 public:
  /// Returns the name by which an entity is found.
  using Name = std::function<std::string(const Entity&)>;
  Registry(Name name, const std::vector<Entity>& built_in) : name_(std::move(name)) {
    for (const Entity& e : built_in) MACO_CHECK(add(e), name_(e));
  }
  /// Adds the entity. Returns false and changes nothing if the name is taken.
  bool add(Entity entity) {
    const std::unique_lock lock(mutex_);
    const auto [it, fresh] = by_name_.try_emplace(name_(entity), nullptr);
    if (!fresh) return false;
    entities_.push_back(std::move(entity));
    it->second = &entities_.back();
    return true;
  }
  /// nullptr if there is none.
  const Entity* find(std::string_view name) const {
    const std::shared_lock lock(mutex_);
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  /// Calls f with each entity, in the order of all(). f must not use the table.
  template <class F>
  void each(F f) const {
    const std::shared_lock lock(mutex_);
    for (const Entity& e : entities_) f(e);
  }
  /// Changes an entity. To be called while nobody uses what find() has returned.
  template <class F>
  void change(std::string_view name, F f) {
    const std::unique_lock lock(mutex_);
    for (Entity& e : entities_)
      if (name_(e) == name) f(e);
  }
  /// The built-in entities, then the others in the order of registration.
  std::vector<Entity> all() const {
    const std::shared_lock lock(mutex_);
    return {entities_.begin(), entities_.end()};
  }

 private:
  Name name_;
  mutable std::shared_mutex mutex_;
  std::deque<Entity> entities_;  // whose elements stay where they are
  std::map<std::string, const Entity*, std::less<>> by_name_;
};

}  // namespace maco::ir
