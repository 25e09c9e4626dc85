// What a run of random graphs has covered.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/run_case.h"

namespace maco::fuzz {

class Coverage {
 public:
  /// Counts the ops of a graph that ran.
  void add(const Prepared& p);
  void add(const Coverage& other);
  /// For each feature and dtype: at which numbers of ranks it ran, without and with dims, by roles.
  /// Then how often each form of an op ran, and at which numbers of ranks each setting. Last, the
  /// shares of graphs with difficult properties.
  std::string table() const;
  /// Cells that are empty but should not be, ops that are unknown here, and shares that are too
  /// small, one on each line.
  std::string missing() const;
  /// Whether each feature occurs with each dtype that it takes and at each number of ranks, each of
  /// its forms, and each setting.
  bool has_each() const;

 private:
  template <class Map>
  static int64_t count(const Map& map, const typename Map::key_type& key) {
    const auto it = map.find(key);
    return it == map.end() ? 0 : it->second;
  }
  struct Shares {
    int64_t graphs = 0, multi_tile = 0, reused = 0, several_ranks = 0, in_flight = 0;
  };
  // by feature, dtype, column, ranks
  std::map<std::tuple<std::string, ir::DType, size_t, int64_t>, int64_t> cells_;
  // by feature, form, dtype
  std::map<std::tuple<std::string, std::string, ir::DType>, int64_t> forms_;
  std::map<std::pair<std::string, int64_t>, int64_t> settings_;  // by ranks
  Shares shares_;
};

/// Whether two temporaries have bytes in common.
bool reuses_buffers(const ir::Program& p);
/// Whether tasks of two collectives are unordered, so that both may be under way.
bool collectives_in_flight(const ir::Program& p);

}  // namespace maco::fuzz
