// What stands in for NCCL on the CPU target: a process group of its own over sockets, which carries
// out what a kernel hands over by the same two words (runtime/device/ops/hand_over.cuh).
//
// Rank 0 gathers what the others hand over, works out what each gets and sends it: sums in rank
// order, in float32, rounded once. Nothing blocks: a step does what can be done at once.
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

/// A rank of this process, as its launch has it.
struct HandingRank {
  int rank = 0;
  const Launch* launch = nullptr;
};

class HandedOver final : public Beside {
 public:
  /// `ranks`: those of this process, which stay. `group`: where each rank has a process of its own;
  /// null: all are here.
  HandedOver(const ir::Manifest& manifest, std::vector<HandingRank> ranks, Group* group);
  ~HandedOver() override;
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;

  /// Connects the ranks anew and lowers all words: before the first launch, and after one that
  /// failed. All of a group call it.
  Status reset();
  /// Before each launch, whose values are known.
  void begin();
  /// Works for ranks of other processes until all have what they wait for, `timeout_ms` at most.
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
  std::vector<int> up_;    // by rank: its socket to rank 0; -1 if it is elsewhere
  std::vector<int> down_;  // by rank: rank 0's socket to it; empty if rank 0 is elsewhere
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Root> root_;
};

}  // namespace maco::runtime
