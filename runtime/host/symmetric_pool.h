// Symmetric memory that sessions of the same ranks in one process share.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/symmetric.h"

namespace maco::runtime {

/// Zeroed memory as SymmetricProvider::allocate gives it. What is small is part of a larger piece,
/// which sessions of the same ranks have parts of: it is allocated, handed to the other processes
/// and mapped once. A piece goes with the last session that has a part. `group`: what groups of
/// these processes have in common (GroupPlace::processes); "" without one. In a group all ask at
/// once, for as many bytes, and all get the same part of a piece, one that is free on every rank.
/// Thread safe.
std::unique_ptr<SymmetricMemory> allocate_pooled(const SymmetricProvider& provider,
                                                 const SymmetricRequest& request,
                                                 const std::string& group, Status& status);

}  // namespace maco::runtime
