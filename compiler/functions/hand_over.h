// hand_over and take_back (runtime/device/ops/hand_over.cuh): a collective that a library outside
// of the kernel carries out, NCCL or its stand-in on the CPU target.
//
//   hand_over   says that the operand is there and that the result may be written
//   take_back   waits until the result is there
//
// In between the library reads the operand and writes the result; take_back declares to do both.
// hand_over declares to write the wires, through which the data of other ranks comes. A rank may
// take nothing back before all ranks have handed over. Where no data implies this (broadcast,
// ring_shift), the ranks meet through a wire of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace maco::functions {

struct HandOver {
  ir::CollectiveKind kind = ir::CollectiveKind::AllReduce;  // to RingShift
  int64_t world = 1;
  int64_t number = 0;   // its place among the graph's collectives that are handed over
  ir::ValueRef rows{};  // of a block or, without blocks, of the tensor
  int64_t cols = 1;
  ir::DType x{};
  ir::Reduction reduce = ir::Reduction::Sum;  // of AllReduce and ReduceScatter
  int64_t peer = 0;                           // Broadcast: the root; RingShift: the distance
  bool root = false;                          // Broadcast: whether the tasks are the root's
  /// Whether ranks have to meet. They don't where each rank gets data of all.
  bool meets() const {
    return kind == ir::CollectiveKind::Broadcast || kind == ir::CollectiveKind::RingShift;
  }
  /// Whether the operand and the result have a block for each rank.
  bool x_blocks() const {
    return kind == ir::CollectiveKind::ReduceScatter || kind == ir::CollectiveKind::AllToAll;
  }
  bool y_blocks() const {
    return kind == ir::CollectiveKind::AllGather || kind == ir::CollectiveKind::AllToAll;
  }
};

bool is_hand_over(std::string_view function);
/// Parameters of both functions. The operands are x, the wires and y, and another wire where ranks
/// meet.
std::vector<ir::Param> params_of(const HandOver& h);
/// The call's parameters as a HandOver; nothing if the call is of another function or has other
/// parameters.
std::optional<HandOver> hand_over_of(const ir::Call& call);
/// The regions of the only task of a call, in the order that `transfers_of` refers to.
std::vector<ir::Access> accesses_of(const ir::Program& program, const ir::Call& call,
                                    const HandOver& h);
std::vector<ir::Transfer> transfers_of(std::string_view function, const HandOver& h);

}  // namespace maco::functions
