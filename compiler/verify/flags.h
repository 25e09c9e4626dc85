// Which packets a task polls for.
#pragma once

#include <cstdint>

#include "compiler/verify/model.h"

namespace maco::verify {

/// An access of a task on one rank.
struct Touch {
  uint32_t task = 0, access = 0;
  int runner = 0;
};

/// Whether `read`, on rank `memory`, of a launch `launches` after that of `write`, can't take what
/// `write` leaves in this memory for other than it is, although it needn't come after it:
///   - it polls for the flags of `write` itself, or
///   - `write` sends packets of another use to the same place, and stands before `read` in the list
///     of tasks. Whoever writes what `read` polls for comes after `write`: that is proved of all
///     writes, and by the lifetimes of slots.
bool tells_apart(const Model& model, Touch write, Touch read, int memory, int launches);

}  // namespace maco::verify
