// Strong ids: entities live in vectors and refer to each other by index.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maco::ir {

enum class TensorId : uint32_t {};
enum class OpId : uint32_t {};
enum class BufferId : uint32_t {};
enum class CallId : uint32_t {};
enum class TaskId : uint32_t {};
enum class EventId : uint32_t {};

/// The index in the owner's vector.
template <class Id>
constexpr size_t index(Id id) {
  return static_cast<size_t>(id);
}
template <class Id>
constexpr Id id_of(size_t i) {
  return static_cast<Id>(i);
}

}  // namespace maco::ir
