// build.cpp: builds an ir::Graph from a document's tree, step by step. Read `build` first; each
// step is a file of this folder.

#include "compiler/frontend/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/complete.h"
#include "compiler/graph/order.h"
#include "compiler/graph/roles.h"
#include "compiler/ops/collectives/messages.h"
#include "ir/ranks.h"

namespace maco::frontend {

namespace {

const std::vector<std::string>& graph_keys() {
  static const std::vector<std::string> keys = {"maco",       "name",
                                                "world",      "dims",
                                                "tensors",    "ops",
                                                "sm_roles",   "schedule",
                                                "overlap",    "overlap_regions",
                                                "phases",     "pipeline",
                                                "backend",    "comm_buffer_bytes",
                                                "cuda_units", "collectives"};
  return keys;
}

void declare_ranks(BuildContext& c) {
  const int64_t world = c.graph.world;
  c.check.variables["rank"] = {Variable::Kind::Rank, {0, world - 1}, c.world_sound};
  c.check.variables["world"] = {Variable::Kind::World, {world, world}, c.world_sound};
}

/// A key that every graph has, though it may be in a part that couldn't be read.
const Raw* require_of_graph(BuildContext& c, const Raw& root, const std::string& key) {
  return c.options.incomplete ? root.find(key) : require(c, root, "the graph", key);
}

/// Returns false if the document's version can't be read.
bool check_version(BuildContext& c, const Raw& root) {
  const Raw* version = require_of_graph(c, root, "maco");
  if (version == nullptr) {
    if (c.options.incomplete) return true;
    c.report.append("; this is format version 1");
    return true;
  }
  if (version->kind == Raw::Kind::Int && version->integer == 1) return true;
  c.error(version->loc, fmt::format("'maco' is the version of the format and must be 1, found {}",
                                    describe(*version)));
  return version->kind != Raw::Kind::Int;
}

void build_name_and_world(BuildContext& c, const Raw& root) {
  if (const Raw* name = require_of_graph(c, root, "name"))
    if (auto text = read_name(c, *name, graph::kGraphName)) c.graph.name = *text;
  if (const Raw* world = root.find("world")) {
    // An expression here could only mean itself: nothing is declared yet.
    const auto value = read_constant(c, *world, "'world'", 1, ir::kMaxWorld);
    c.world_sound = value.has_value();
    c.graph.world = value.value_or(2);
  } else if (c.options.incomplete) {
    c.world_sound = false;
    c.graph.world = 2;
  }
}

void build_settings(BuildContext& c, const Raw& root) {
  ir::Graph& g = c.graph;
  if (const Raw* v = root.find("schedule"))
    g.schedule = read_enum<ir::Schedule>(c, *v, "'schedule'", {"static", "dynamic"})
                     .value_or(ir::Schedule::Dynamic);
  if (const Raw* v = root.find("overlap"))
    g.overlap = read_enum<ir::Overlap>(c, *v, "'overlap'", {"none", "conservative", "aggressive"})
                    .value_or(g.overlap);
  if (const Raw* v = root.find("backend"))
    g.backend =
        read_enum<ir::Backend>(c, *v, "'backend'", {"p2p", "nccl", "nvshmem"}).value_or(g.backend);
  if (const Raw* v = root.find("comm_buffer_bytes"))
    g.comm_buffer_bytes = read_constant(c, *v, "'comm_buffer_bytes'", 0, INT64_MAX);
}

/// Reads kernels that were read before, in a graph that the compiler printed.
void build_cuda_units(BuildContext& c, const Raw& units) {
  if (!expect(c, units, Raw::Kind::Map, "'cuda_units'", "a map of units")) return;
  check_duplicate_keys(c, units, "'cuda_units'");
  for (const Raw::Entry& e : units.map) {
    const std::string what = fmt::format("unit {}", quoted(e.key));
    if (!ir::is_identifier(e.key) || e.key.find('.') != std::string::npos) {
      c.error(e.key_loc, fmt::format("{} has no name of letters, digits and '_'", what));
      continue;
    }
    if (!expect(c, e.value, Raw::Kind::Map, what, "a map of texts")) continue;
    check_keys(c, e.value, what, {"original", "device"});
    ir::CudaUnit unit{.name = e.key, .original = "", .device = ""};
    for (const auto& [key, text] :
         {std::pair("original", &unit.original), std::pair("device", &unit.device)})
      if (const Raw* found = require(c, e.value, what, key))
        if (expect(c, *found, Raw::Kind::String, fmt::format("'{}' of {}", key, what), "a text"))
          *text = found->text;
    c.graph.cuda_units.push_back(std::move(unit));
  }
}

/// The graph without broken ops, so that their errors don't hide those of other ops' shapes.
ir::Graph without_broken(const BuildContext& c) {
  ir::Graph g = c.graph;
  std::vector<bool> written(g.tensors.size(), false);
  std::vector<ir::Op> ops;
  for (size_t i = 0; i < g.ops.size(); ++i) {
    if (c.op_state[i].broken) continue;
    for (ir::TensorId id : g.ops[i].out) written[index(id)] = true;
    ops.push_back(std::move(g.ops[i]));
  }
  g.ops = std::move(ops);
  // Outputs of the ops left out hold what the caller bound, like a state, and so may be read.
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].kind == ir::TensorKind::Output && !written[i])
      g.tensors[i].kind = ir::TensorKind::State;
  return g;
}

/// Marks ops that read a broken op's output (a state, or an output with a declared type), which may
/// have been built before that op was known to be broken.
void spread_breakage(BuildContext& c) {
  for (size_t i = 0; i < c.graph.ops.size(); ++i) {
    ir::Op& op = c.graph.ops[i];
    for (ir::TensorId id : op.in)
      if (c.tensor_state[index(id)].poisoned) c.op_state[i].broken = true;
    if (!c.op_state[i].broken) continue;
    for (ir::TensorId id : op.out)
      if (c.graph[id].kind == ir::TensorKind::Temp) c.tensor_state[index(id)].poisoned = true;
  }
}

void infer_shapes(BuildContext& c) {
  const bool sound = c.report.errors() == 0 && !c.options.incomplete;
  ir::Diagnostics found = c.diagnostics;  // the same files and contexts
  found.clear();
  if (sound) {
    if (ops::infer(c.graph, found)) ops::Messages::match(c.graph, found);
  } else if (c.world_sound) {
    spread_breakage(c);
    ir::Graph rest = without_broken(c);
    ops::infer(rest, found);
  }
  c.report.take(found.all());
  const bool inferred = sound && !found.has_errors();
  for (const RangesAt& r : c.ranges)
    graph::check_homes(c.graph, r.ranges, r.loc, inferred, c.report);
}

/// Phases, regions, the pipeline and roles; the ops have their names.
void build_constraints(BuildContext& c, const Raw& root) {
  if (const Raw* phases = root.find("phases")) build_phases(c, *phases);
  if (const Raw* regions = root.find("overlap_regions")) build_regions(c, *regions);
  if (const Raw* pipeline = root.find("pipeline")) build_pipeline(c, *pipeline);
  if (const Raw* roles = root.find("sm_roles")) build_roles(c, *roles);
}

void build_graph(BuildContext& c, const Raw& root) {
  if (!expect(c, root, Raw::Kind::Map, "the graph", "a map of keys")) return;
  c.graph.loc = root.loc;
  if (!check_version(c, root)) return;
  check_keys(c, root, "the graph", graph_keys());
  for (const Raw::Entry& e : root.map) c.graph.key_loc.emplace(e.key, e.key_loc);

  // Names first: what is declared anywhere may be used everywhere.
  build_name_and_world(c, root);
  declare_ranks(c);
  if (const Raw* dims = root.find("dims")) build_dims(c, *dims);
  const Raw* tensors = require_of_graph(c, root, "tensors");
  const Raw* ops = require_of_graph(c, root, "ops");
  if (tensors != nullptr)
    build_tensors(c, *tensors);
  else
    c.tensors_sound = false;
  if (ops != nullptr)
    unroll_tensors(c, *ops, {}, build_tensors);
  else
    c.check.hidden_ops = true;

  // Settings come before the ops and roles that they govern; ops come before whatever names them.
  build_settings(c, root);
  if (const Raw* units = root.find("cuda_units")) build_cuda_units(c, *units);
  build_algorithms(c, root);
  c.ops = c.iterations = 0;
  if (ops != nullptr) build_ops(c, *ops);
  finish_ops(c);
  build_constraints(c, root);
  check_references(c);
  graph::check_order(c.graph, c.report);
  infer_shapes(c);
}

}  // namespace

std::optional<ir::Graph> build(const Raw& root, const BuildOptions& options,
                               ir::Diagnostics& diagnostics) {
  BuildContext c(options, diagnostics);
  build_graph(c, root);
  const bool good = c.report.errors() == 0 && !options.incomplete;
  c.report.flush(diagnostics);
  if (!good) return std::nullopt;
  graph::order_tensors(c.graph);
  return std::move(c.graph);
}

bool read_keys(const Raw& keys, ir::Graph& graph, ir::Diagnostics& diagnostics) {
  const BuildOptions options;
  BuildContext c(options, diagnostics);
  c.graph = graph;
  c.check.variables = graph::variables_of(c.graph);
  for (const ir::Tensor& t : c.graph.tensors) c.check.tensors.emplace(t.name, t.loc);
  for (size_t i = 0; i < c.graph.ops.size(); ++i) {
    c.check.ops.emplace(c.graph.ops[i].name, c.graph.ops[i].loc);
    c.op_of.emplace(c.graph.ops[i].name, i);
  }
  check_keys(c, keys, "the graph",
             {"sm_roles", "schedule", "overlap", "overlap_regions", "phases", "pipeline", "backend",
              "comm_buffer_bytes", "collectives"});
  for (const Raw::Entry& e : keys.map) c.graph.key_loc.emplace(e.key, e.key_loc);
  build_settings(c, keys);
  build_algorithms(c, keys);
  build_constraints(c, keys);
  const bool good = c.report.errors() == 0;
  c.report.flush(diagnostics);
  if (good) graph = std::move(c.graph);
  return good;
}

bool add_collectives(const std::vector<Raw>& collectives, ir::Graph& graph,
                     ir::Diagnostics& diagnostics) {
  BuildOptions options;
  options.collectives = collectives;
  BuildContext c(options, diagnostics);
  c.graph = graph;
  c.check.variables = graph::variables_of(c.graph);
  build_named_algorithms(c, [&](const std::string& name) {
    return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const ir::Op& op) {
      const auto found = op.attrs.find("algorithm");
      const auto* word =
          found == op.attrs.end() ? nullptr : std::get_if<std::string>(&found->second.value);
      return word != nullptr && *word == name;
    });
  });
  const bool good = c.report.errors() == 0;
  c.report.flush(diagnostics);
  if (good) graph = std::move(c.graph);
  return good;
}

}  // namespace maco::frontend
