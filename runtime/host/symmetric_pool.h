// Symmetric memory that sessions of the same ranks in one process share.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/symmetric.h"

namespace maco::runtime {

/// Zeroed memory as from SymmetricProvider::allocate. Small memory is a part of a larger piece, of
/// which several sessions of the same ranks have parts: the piece is allocated, sent to the other
/// processes and mapped only once. It is freed with the last session that has a part. `group`: what
/// groups of these processes have in common (GroupPlace::processes); "" without a group. In a group
/// all processes ask at once, for the same number of bytes, and get the same part of a piece, which
/// is free on every rank. Thread safe.
std::unique_ptr<SymmetricMemory> allocate_pooled(const SymmetricProvider& provider,
                                                 const SymmetricRequest& request,
                                                 const std::string& group, Status& status);

}  // namespace maco::runtime
