// What a run of random graphs has covered.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/run_case.h"

namespace maco::fuzz {

class Coverage {
 public:
  /// Counts the ops of a graph that ran.
  void add(const Prepared& p, RolesKind roles);
  void add(const Coverage& other);
  /// For each feature: at which numbers of ranks it ran with which dtype, and how often without and with dims, by roles. Below, the shares
  /// of graphs with what makes them hard.
  std::string table() const;
  /// Cells that should not be empty and are, and shares that are too small, a line each.
  std::string missing() const;

 private:
  struct Row {
    std::map<std::pair<ir::DType, int64_t>, int64_t> ran;  // by dtype and ranks
    std::array<std::array<int64_t, 3>, 2> split{};         // by dims and roles
  };
  struct Shares {
    int64_t graphs = 0, multi_tile = 0, reused = 0, several_ranks = 0, in_flight = 0;
  };
  std::map<std::string, Row> rows_;
  Shares shares_;
};

/// Two temporaries have bytes in common.
bool reuses_buffers(const ir::Program& p);
/// Tasks of two collectives are ordered neither way, so that both may be under way.
bool collectives_in_flight(const ir::Program& p);

}  // namespace maco::fuzz
