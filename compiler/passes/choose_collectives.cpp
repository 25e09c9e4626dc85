// choose_collectives.cpp: chooses an algorithm for each collective whose `algorithm` is auto, and
// refuses an algorithm that the op can't use.
//
// `auto` takes the algorithm with the least time by their cost models (ops/collectives): one-shot
// sends everything to all in one hop, two-shot sends less in two hops. It takes none that rounds
// differently from the reference. It takes two-shot for a sum that the pushing matmul can then add
// up itself. If the graph limits symmetric memory, collectives with `auto` take algorithms that
// need less until all fits, the largest savings first.
//
// What matmuls will be, and what they will push, is seen in a copy of the graph to which the rules
// of `fuse` have been applied.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/chunk_witness.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/begin_program.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/symmetric.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

// The op's `algorithm`; nothing if there is no choice.
std::optional<std::string> algorithm_of(const ir::Op& op) {
  if (!ops::find_op(op.kind)->collective) return std::nullopt;
  const auto it = op.attrs.find("algorithm");
  std::string word = it == op.attrs.end() ? "auto" : std::get<std::string>(it->second.value);
  if (word == "auto" && !ops::has_algorithms(op.kind)) return std::nullopt;
  return word;
}

// Why the op can't use the algorithm; "" if it can, and for 'auto'.
std::string refusal(const ir::Graph& graph, const ir::Op& op, const std::string& algorithm) {
  const std::vector<std::string> known = ops::algorithm_words(op.kind);
  if (graph.find_algorithm(algorithm) && ops::takes_user_algorithms(op.kind)) return "";
  if (std::find(known.begin(), known.end(), algorithm) != known.end()) return "";
  std::string others = "'auto'";
  for (size_t i = 0; i < known.size(); ++i)
    others += fmt::format("{}'{}'", i + 1 < known.size() ? ", " : " or ", known[i]);
  if (algorithm == "twoshot")
    return fmt::format("algorithm 'twoshot' is of 'allreduce' and 'broadcast', not of '{}'; use {}",
                       op.kind, others);
  return fmt::format("algorithm '{}' of '{}' can't be compiled by this version; use {}", algorithm,
                     op.kind, others);
}

// Checks that a user's algorithm does what the collective has to, in every run.
bool check_user_algorithm(const ir::Graph& graph, const ir::Op& op, const ir::UserAlgorithm& own,
                          PassContext& context) {
  std::optional<ops::ChunkFault> fault;
  const auto flow = ops::chunk_flow(graph, op, own, context.diagnostics, &fault);
  if (!flow) {
    if (!fault) return false;
    if (context.algorithm_witness)
      *context.algorithm_witness = ops::print(graph, op, own, *fault);
    else
      context.diagnostics.note({},
                               "maco-opt GRAPH --verify --witness FILE writes a run that shows "
                               "it, for maco-run GRAPH --replay FILE");
    return false;
  }
  if (flow->packets && !ir::canonical(graph[op.in[0]].shape[0]).is_constant()) {
    context.diagnostics.error(
        op.loc,
        fmt::format("collective '{}' asks for packets, but how many rows '{}' has, only the "
                    "launch knows: leave 'packets' out",
                    own.name, graph[op.in[0]].name));
    return false;
  }
  return true;
}

// The fastest algorithm by the cost model; of equals the first.
std::string choose(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  const ir::Tensor& x = graph[op.in[0]];
  const auto bytes = static_cast<double>(ir::max_elements(graph, x.shape) * ir::size_of(x.dtype));
  std::string best;
  double least = 0;
  for (const ops::Algorithm& a : ops::algorithms_of(op.kind)) {
    if (!a.route || (a.exact && !a.exact(graph, op))) continue;
    const double seconds = cost::seconds(a.route(bytes, graph.world), machine);
    if (!best.empty() && seconds >= least) continue;
    best = a.word;
    least = seconds;
  }
  MACO_CHECK(!best.empty(), op.kind);
  return best;
}

// Takes two-shot instead of one-shot where a matmul that pushes its tiles then also adds them up:
// the bits are the same, and no task behind it has to read all ranks' tensors.
void leave_sums_to_products(ir::Graph& graph, const std::vector<ir::OpId>& free,
                            PassContext& context) {
  ir::Program program;
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);
  for (const ir::OpId id : free) {
    ir::Op& op = graph[id];
    auto& chosen = std::get<std::string>(op.attrs["algorithm"].value);
    if (!ops::is_one_shot_sum(op)) continue;
    chosen = "twoshot";
    ir::Diagnostics unheard;
    const ops::TileContext sum(graph, id, program, context.machine, buffers, unheard);
    if (!ops::refuse_push(graph, op, context.machine, false).empty() || !ops::may_add_up(sum))
      chosen = "oneshot";
  }
}

void fit(ir::Graph& graph, const std::vector<ir::OpId>& free, PassContext& context) {
  int64_t total = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (ops::find_op(graph.ops[i].kind)->collective)
      total += symmetric_bytes(graph, ir::id_of<ir::OpId>(i), context);
  struct Saving {
    ir::OpId op;
    std::string algorithm;
    int64_t bytes;
  };
  std::vector<Saving> savings;
  for (ir::OpId id : free) {
    if (total <= *graph.comm_buffer_bytes) return;
    auto& chosen = std::get<std::string>(graph[id].attrs["algorithm"].value);
    const std::string fast = chosen;
    const int64_t now = symmetric_bytes(graph, id, context);
    Saving best{id, fast, 0};
    for (const ops::Algorithm& other : ops::algorithms_of(graph[id].kind)) {
      if (!other.route || (other.exact && !other.exact(graph, graph[id]))) continue;
      chosen = other.word;
      if (const int64_t less = now - symmetric_bytes(graph, id, context); less > best.bytes)
        best = {id, other.word, less};
    }
    chosen = fast;
    if (best.bytes > 0) savings.push_back(best);
  }
  std::stable_sort(savings.begin(), savings.end(),
                   [](const Saving& a, const Saving& b) { return a.bytes > b.bytes; });
  for (const Saving& s : savings) {
    if (total <= *graph.comm_buffer_bytes) return;
    graph[s.op].attrs["algorithm"].value = s.algorithm;
    total -= s.bytes;
  }
}

// Changes the choices of the collectives `free` for what the graph will be when it is fused.
void choose_for_fused(ir::Graph& graph, const std::vector<ir::OpId>& free, PassContext& context) {
  ir::Graph fused = graph;
  ir::Diagnostics unheard;
  PassContext own(unheard, context.machine);
  own.load_ahead = context.load_ahead;
  own.left_out = context.left_out;
  own.available_sms = context.available_sms;
  // What can't be fused is refused by `fuse` itself.
  if (!fuse_before_algorithms(fused, own)) return;

  std::map<std::string, ir::OpId> by_name;
  for (const ir::OpId id : free) by_name.emplace(graph[id].name, id);
  std::vector<ir::OpId> same;  // the collectives `free` in the fused graph
  for (size_t i = 0; i < fused.ops.size(); ++i)
    if (const auto it = by_name.find(fused.ops[i].name);
        it != by_name.end() && graph[it->second].kind == fused.ops[i].kind)
      same.push_back(ir::id_of<ir::OpId>(i));
  if (graph.world > 1) leave_sums_to_products(fused, same, own);
  if (graph.comm_buffer_bytes) fit(fused, same, own);
  for (const ir::OpId id : same)
    graph[by_name.at(fused[id].name)].attrs["algorithm"] = fused[id].attrs["algorithm"];
}

}  // namespace

bool choose_collectives(ir::Graph& graph, PassContext& context) {
  bool ok = true;
  std::vector<ir::OpId> free;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    ir::Op& op = graph.ops[i];
    const auto algorithm = algorithm_of(op);
    if (!algorithm) continue;
    if (ops::is_handed_over(graph, op)) {
      op.attrs["algorithm"] = {"nccl", op.loc};
      continue;
    }
    if (*algorithm == "auto") {
      op.attrs["algorithm"] = {choose(graph, op, context.machine), op.loc};
      free.push_back(ir::id_of<ir::OpId>(i));
    } else if (const std::string why = refusal(graph, op, *algorithm); !why.empty()) {
      context.diagnostics.error(op.attrs["algorithm"].loc, why);
      ok = false;
    } else if (const auto* own = graph.find_algorithm(*algorithm)) {
      ok = check_user_algorithm(graph, op, *own, context) && ok;
    }
  }
  const bool sums = std::any_of(free.begin(), free.end(), [&](ir::OpId id) {
    return graph.world > 1 && ops::is_one_shot_sum(graph[id]);
  });
  if (ok && !free.empty() && (sums || graph.comm_buffer_bytes))
    choose_for_fused(graph, free, context);
  return ok;
}

bool has_algorithms(const ir::Graph& graph) {
  return std::all_of(graph.ops.begin(), graph.ops.end(), [&](const ir::Op& op) {
    const auto algorithm = algorithm_of(op);
    return !algorithm || refusal(graph, op, *algorithm).empty();
  });
}

}  // namespace maco::passes
