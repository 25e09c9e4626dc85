// The passes: each takes an IR and returns an IR. Passes communicate only through the IR. The list
// of them is in compiler/pipeline, which runs them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/cost/machine.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::passes {

/// What a pass is told besides the IR, and where it reports.
struct PassContext {
  PassContext(ir::Diagnostics& d, const cost::Machine& m) : diagnostics(d), machine(m) {}
  ir::Diagnostics& diagnostics;
  const cost::Machine& machine;
  bool load_ahead = true;                         // --no-load-ahead
  std::set<std::string, std::less<>> left_out{};  // rules of the pass `fuse` (fuse/rules.h)
  int64_t available_sms = 0;  // of the machine's SMs, for one rank (fewer with --ranks-per-gpu)
  int64_t variant = 0;        // as PipelineOptions has it
  // For sources of ops `cuda` (frontend/cuda_kernels.h).
  std::vector<std::string> include_folders{}, defines{};
  std::string* algorithm_witness = nullptr;  // as PipelineOptions has it
  // "waits inserted", "waits pruned", ...: for --report and dumps
  std::map<std::string, int64_t> statistics;
  /// What was fused, and what wasn't and why, for --report and --explain: for each such text the
  /// ops that it concerns.
  std::map<std::string, std::vector<std::string>> fusions{};
  void fused(const std::string& what, const std::string& op) { fusions[what].push_back(op); }
};

/// What one pass leaves for the next.
using Unit = std::variant<ir::Graph, ir::Program>;

/// The form of a Unit, in the order of the pipeline; each form promises what the forms before it
/// do. It is derived from the Unit, whoever wrote it: a graph in which a user wrote algorithms and
/// ranges has form Roles.
enum class Form : uint8_t {
  Graph,      // inferred, as the frontends return it
  Supported,  // without anything that this version can't compile
  Canonical,  // no collective of one rank; no op writes a state that it still reads
  Chosen,     // each collective names its algorithm
  Roles,      // sm_roles is a list of ranges of the target's SMs, with a home for every kind of op
  Cut,        // each op says how it is cut
  Tiled,      // a Program of the stage `tiled`
  Planned,
  Scheduled,
  Synced,
};
/// "a canonical graph", "a tiled Program"
std::string_view name(Form form);
/// The last form whose promises hold. For a Program it is what its stage says; whether the Program
/// keeps that promise is the verifier's to check.
Form form_of(const Unit& unit, const PassContext& context);

// The passes, one file each, and predicates for what some of them leave behind (form_of). A pass
// returns false if it reported an error.
bool take_variant(ir::Graph& graph, PassContext& context);
bool take_variant(ir::Graph& graph, int64_t variant, ir::Diagnostics& diagnostics);
bool check_support(ir::Graph& graph, PassContext& context);
bool is_supported(const ir::Graph& graph);
bool canonicalize(ir::Graph& graph, PassContext& context);
bool prepare_operands(ir::Graph& graph, PassContext& context);
bool is_canonical(const ir::Graph& graph);
bool choose_collectives(ir::Graph& graph, PassContext& context);
bool has_algorithms(const ir::Graph& graph);
bool fuse(ir::Graph& graph, PassContext& context);  // fuse/rules.cpp
bool assign_roles(ir::Graph& graph, PassContext& context);
bool has_roles(const ir::Graph& graph, const PassContext& context);
bool choose_tiles(ir::Graph& graph, PassContext& context);
bool has_tiles(const ir::Graph& graph);
bool tile(const ir::Graph& graph, ir::Program& program, PassContext& context);
bool send_packets(ir::Program& program, PassContext& context);
bool plan_memory(ir::Program& program, PassContext& context);
bool schedule(ir::Program& program, PassContext& context);
bool insert_sync(ir::Program& program, PassContext& context);
bool prune_sync(ir::Program& program, PassContext& context);
bool share_slots(ir::Program& program, PassContext& context);
bool verify(ir::Program& program, PassContext& context);

}  // namespace maco::passes
