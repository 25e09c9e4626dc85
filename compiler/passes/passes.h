// The passes: each takes an IR and returns an IR, and passes talk to each other through it only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/cost/machine.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::passes {

struct Context {
  Context(ir::Diagnostics& d, const cost::Machine& m) : diagnostics(d), machine(m) {}
  ir::Diagnostics& diagnostics;
  const cost::Machine& machine;
  bool load_ahead = true;        // --no-load-ahead
  std::optional<int64_t> comm_buffer_bytes;  // the graph's limit on symmetric scratch
  ir::Loc comm_buffer_loc;
  int64_t available_sms = 0;     // of the machine, for one rank (fewer with --ranks-per-gpu)
  std::map<std::string, int64_t> statistics;  // "waits inserted", "waits pruned", ...: for --report and dumps
};

/// What stands between two passes.
using Unit = std::variant<ir::Graph, ir::Program>;

struct Pass {
  std::string name;
  std::string summary;
  /// False if an error was reported. Exactly one of the three is set.
  bool (*on_graph)(ir::Graph&, Context&) = nullptr;
  bool (*lower)(const ir::Graph&, ir::Program&, Context&) = nullptr;
  bool (*on_program)(ir::Program&, Context&) = nullptr;
};

/// All passes, in the order of the pipeline.
const std::vector<Pass>& registry();
const Pass* find_pass(std::string_view name);

/// Applies `pass` to `unit`. An error is reported if the unit is of the wrong kind.
bool apply(const Pass& pass, Unit& unit, Context& context);

// The passes, one file each.
bool check_support(ir::Graph& graph, Context& context);
bool canonicalize(ir::Graph& graph, Context& context);
bool fuse(ir::Graph& graph, Context& context);
bool choose_collectives(ir::Graph& graph, Context& context);
bool assign_roles(ir::Graph& graph, Context& context);
bool tile(const ir::Graph& graph, ir::Program& program, Context& context);
bool plan_memory(ir::Program& program, Context& context);
bool schedule(ir::Program& program, Context& context);
bool insert_sync(ir::Program& program, Context& context);
bool prune_sync(ir::Program& program, Context& context);
bool verify(ir::Program& program, Context& context);

}  // namespace maco::passes
