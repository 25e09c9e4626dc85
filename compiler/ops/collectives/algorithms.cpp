#include "compiler/ops/collectives/algorithms.h"

#include <fmt/format.h>

#include "compiler/ops/attrs.h"
#include "ir/check.h"
#include "ir/registry.h"

namespace maco::ops {

namespace {

std::string name_of(const Algorithm& a) { return a.op + " " + a.word; }

ir::Registry<Algorithm>& table() {
  static ir::Registry<Algorithm> algorithms(
      name_of, {allreduce_oneshot(), allreduce_twoshot(), allreduce_ring(), allgather_oneshot(),
                allgather_ring(), reduce_scatter_oneshot(), reduce_scatter_ring(), alltoall(),
                broadcast(), ring_shift(), send(), recv(), barrier()});
  return algorithms;
}

const Algorithm& algorithm_of(const ir::Op& op) {
  const Algorithm* a = table().find(op.kind + " " + attr_word(op, "algorithm", ""));
  MACO_CHECK(a, op.name);
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

void tile_by_algorithm(TileContext& context) { algorithm_of(context.op()).tile(context); }
Cut choose_by_algorithm(const TileContext& context) {
  const Algorithm& a = algorithm_of(context.op());
  return a.choose ? a.choose(context) : Cut{};
}

bool has_choice(const ir::Op& op) {
  const OpDef& def = *find_op(op.kind);
  return def.choose && (def.choose != choose_by_algorithm || algorithm_of(op).choose);
}

std::string register_algorithm(Algorithm algorithm) {
  const std::string op = algorithm.op, word = algorithm.word;
  if (algorithm_words(op).empty()) return fmt::format("'{}' takes no algorithm", op);
  if (word.empty() || word == "auto") return fmt::format("an algorithm of '{}' needs a word", op);
  if (!algorithm.tile) return fmt::format("algorithm '{}' of '{}' needs a tile rule", word, op);
  if (!table().add(std::move(algorithm)))
    return fmt::format("algorithm '{}' of '{}' is there already", word, op);
  return "";
}

}  // namespace maco::ops
