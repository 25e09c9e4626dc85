// The stand-in for NCCL on the CPU target: a process group of its own over sockets. It carries out
// what a kernel hands over, by the same two words (runtime/device/ops/hand_over.cuh).
//
// Rank 0 gathers what the others hand over, computes each rank's result and sends it. Sums are in
// rank order, in float32, and rounded once. Nothing blocks: a step does what can be done at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/manifest.h"
#include "runtime/cpu/executor.h"
#include "runtime/host/abi.h"
#include "runtime/host/group.h"
#include "runtime/status.h"

namespace maco::runtime {

/// A rank of this process, as its launch uses it.
struct HandingRank {
  int rank = 0;
  const Launch* launch = nullptr;
};

class HandedOver final : public Beside {
 public:
  /// `ranks`: the ranks of this process; their memory doesn't move. `group`: if each rank has a
  /// process of its own; null: all are here.
  HandedOver(const ir::Manifest& manifest, std::vector<HandingRank> ranks, Group* group);
  ~HandedOver() override;
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;

  /// Connects the ranks again and lowers all words: before the first launch, and after one that
  /// failed. All processes of a group call it.
  Status reset();
  /// Called before each launch, once its values are known.
  void begin();
  /// Works for ranks of other processes until all have what they wait for, for at most
  /// `timeout_ms`.
  void finish(uint64_t timeout_ms);
  bool step(const std::function<void(const void*)>& changed) override;

 private:
  class Rank;
  class Root;
  void close_all();
  Status connect();

  const ir::Manifest& manifest_;
  const std::vector<HandingRank> here_;
  Group* const group_;
  std::vector<int> up_;    // by rank: its socket to rank 0; -1 if the rank is elsewhere
  std::vector<int> down_;  // by rank: rank 0's socket to it; empty if rank 0 is elsewhere
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Root> root_;
};

}  // namespace maco::runtime
