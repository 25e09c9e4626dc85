#include "compiler/ops/collectives/algorithms.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/collectives/user_algorithm.h"
#include "ir/check.h"
#include "ir/registry.h"

namespace maco::ops {

namespace {

std::string name_of(const Algorithm& a) { return a.op + " " + a.word; }

ir::Registry<Algorithm>& table() {
  static ir::Registry<Algorithm> algorithms(name_of, {allreduce_oneshot(),
                                                      allreduce_twoshot(),
                                                      allreduce_ring(),
                                                      allgather_oneshot(),
                                                      allgather_ring(),
                                                      reduce_scatter_oneshot(),
                                                      reduce_scatter_ring(),
                                                      alltoall(),
                                                      broadcast_oneshot(),
                                                      broadcast_twoshot(),
                                                      ring_shift(),
                                                      send(),
                                                      recv(),
                                                      barrier(),
                                                      allreduce_nccl(),
                                                      allgather_nccl(),
                                                      reduce_scatter_nccl(),
                                                      alltoall_nccl(),
                                                      broadcast_nccl(),
                                                      ring_shift_nccl(),
                                                      barrier_nccl()});
  return algorithms;
}

// The op's algorithm; null if it is a collective that the graph defines.
const Algorithm* algorithm_of(const ir::Graph& graph, const ir::Op& op) {
  if (is_handed_over(graph, op)) return table().find(op.kind + " nccl");
  std::string word = attr_word(op, "algorithm", "");
  if (word == "auto") word = "";
  return table().find(op.kind + " " + word);
}
const ir::UserAlgorithm& user_algorithm_of(const TileContext& context) {
  const auto* a = context.graph().find_algorithm(context.word("algorithm", ""));
  MACO_CHECK(a, context.op().name);
  return *a;
}

}  // namespace

std::vector<Algorithm> algorithms_of(std::string_view op) {
  std::vector<Algorithm> found;
  for (Algorithm& a : table().all())
    if (a.op == op) found.push_back(std::move(a));
  return found;
}

std::vector<std::string> algorithm_words(std::string_view op) {
  std::vector<std::string> words;
  for (const Algorithm& a : algorithms_of(op))
    if (!a.word.empty()) words.push_back(a.word);
  return words;
}

bool has_algorithms(std::string_view op) {
  const std::vector<Algorithm> all = algorithms_of(op);
  return std::any_of(all.begin(), all.end(), [](const Algorithm& a) { return a.route; });
}

bool is_handed_over(const ir::Graph& graph, const ir::Op& op) {
  if (graph.world < 2) return false;
  const std::string word = attr_word(op, "algorithm", "auto");
  if (word != "auto") return word == "nccl";
  return graph.backend == ir::Backend::Nccl && table().find(op.kind + " nccl");
}

bool takes_user_algorithms(std::string_view op) {
  constexpr std::string_view kinds[] = {"allreduce", "allgather", "reduce_scatter", "alltoall",
                                        "broadcast"};
  return std::find(std::begin(kinds), std::end(kinds), op) != std::end(kinds);
}

std::string taken_algorithm_word(std::string_view word) {
  if (word == "auto" || word == "nccl")
    return fmt::format("'{}' has a meaning as an algorithm", word);
  for (const Algorithm& a : table().all())
    if (!a.word.empty() && a.word == word)
      return fmt::format("'{}' is an algorithm of '{}'", word, a.op);
  return "";
}

void tile_by_algorithm(TileContext& context) {
  if (const Algorithm* a = algorithm_of(context.graph(), context.op())) return a->tile(context);
  tile_user_algorithm(context, user_algorithm_of(context));
}
Cut choose_by_algorithm(const TileContext& context) {
  if (moves_as_made(context.op())) return cut_as_made(context);
  const Algorithm* a = algorithm_of(context.graph(), context.op());
  if (!a) return choose_user_algorithm(context, user_algorithm_of(context));
  return a->choose ? a->choose(context) : Cut{};
}

bool has_choice(const ir::Graph& graph, const ir::Op& op) {
  const OpDef& def = *find_op(op.kind);
  if (!def.choose || def.choose != choose_by_algorithm) return def.choose != nullptr;
  const Algorithm* a = algorithm_of(graph, op);
  return !a || a->choose;
}

std::string register_algorithm(Algorithm algorithm) {
  const std::string op = algorithm.op, word = algorithm.word;
  if (!has_algorithms(op)) return fmt::format("'{}' takes no algorithm", op);
  if (word.empty() || word == "auto") return fmt::format("an algorithm of '{}' needs a word", op);
  if (!algorithm.tile) return fmt::format("algorithm '{}' of '{}' needs a tile rule", word, op);
  if (!table().add(std::move(algorithm)))
    return fmt::format("algorithm '{}' of '{}' is there already", word, op);
  return "";
}

}  // namespace maco::ops
