// A second opinion on a synced Program, by enumeration: every task of every rank and launch is a
// node, happens-before is reachability, bytes are rows of bytes, collectives are carried out
// element by element. It shares no code with compiler/verify, looks at one launch more than the
// verifier, and uses none of the verifier's short cuts (clocks, symmetry, histories, tiles).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace maco::proofs {

/// Bytes of one rank's memory: `rows` runs of `width`, `pitch` apart.
struct Bytes {
  int64_t start = 0, pitch = 0, rows = 0, width = 0;
  int64_t end() const { return start + (rows - 1) * pitch + width; }
};
bool meet(const Bytes& a, const Bytes& b);

/// Two accesses to the same bytes, one of them a write: y comes after x in the list of tasks and
/// launches. A task that two ranks run at once may come first on either: two conflicts then have
/// the same `choice`, and one of them has to hold.
struct Conflict {
  uint32_t x = 0, y = 0;  // nodes
  uint16_t access_x = 0, access_y = 0;
  int16_t memory = 0;  // the rank whose bytes they are
  int32_t choice = -1;
};

/// All conflicts of a Program. They depend on its buffers, its list of tasks and their accesses;
/// not on streams and events.
class Conflicts {
 public:
  explicit Conflicts(const ir::Program& program);
  const std::vector<Conflict>& all() const { return all_; }
  int32_t choices() const { return choices_; }

 private:
  std::vector<Conflict> all_;
  int32_t choices_ = 0;
};

/// Node numbers: launch, rank, task.
struct Nodes {
  explicit Nodes(const ir::Program& program);
  uint32_t tasks = 0;
  int world = 1, launches = 1;
  uint32_t size() const { return tasks * static_cast<uint32_t>(world * launches); }
  uint32_t at(int launch, int rank, uint32_t task) const {
    return static_cast<uint32_t>(launch * world + rank) * tasks + task;
  }
  uint32_t task(uint32_t node) const { return node % tasks; }
  int rank(uint32_t node) const { return static_cast<int>(node / tasks) % world; }
  int launch(uint32_t node) const { return static_cast<int>(node / tasks) / world; }
};

/// Whether a task that waits for packets polls some for every value of the dims; it doesn't if some
/// of what it touches may lie beyond the actual rows.
bool surely_polls(const ir::Program& program, const ir::Task& task);

/// "" if the Program is right, else what is wrong, as "race: ..." (also structure, count, deadlock,
/// after, barrier, meaning, delivery). Presupposes valid ids. `conflicts`: those of a Program with
/// the same buffers and accesses, if they are known.
std::string second_opinion(const ir::Program& program, const Conflicts* conflicts = nullptr);

}  // namespace maco::proofs
