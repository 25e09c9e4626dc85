// random_plan.cpp: what a random graph must have, by its seed.
#include <iterator>
#include <numeric>
#include <set>

#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/random_values.h"

namespace maco::fuzz {

using ir::DType;

const std::vector<std::string>& features() {
  static const std::vector<std::string> list = {"matmul",
                                                "add",
                                                "sub",
                                                "mul",
                                                "maximum",
                                                "minimum",
                                                "relu",
                                                "silu",
                                                "gelu",
                                                "sigmoid",
                                                "tanh",
                                                "exp",
                                                "log",
                                                "sqrt",
                                                "rsqrt",
                                                "sin",
                                                "cos",
                                                "erf",
                                                "neg",
                                                "abs",
                                                "div",
                                                "pow",
                                                "clamp",
                                                "eq",
                                                "ne",
                                                "lt",
                                                "le",
                                                "gt",
                                                "ge",
                                                "where",
                                                "swiglu",
                                                "geglu",
                                                "rmsnorm",
                                                "layernorm",
                                                "softmax",
                                                "rope",
                                                "attention",
                                                "kv_append",
                                                "argmax",
                                                "sum",
                                                "mean",
                                                "max",
                                                "embedding",
                                                "cast",
                                                "copy",
                                                "reshape",
                                                "slice",
                                                "concat",
                                                "split",
                                                "transpose",
                                                "allreduce auto",
                                                "allgather",
                                                "alltoall",
                                                "broadcast",
                                                "barrier",
                                                "ring_shift",
                                                "send",
                                                "recv",
                                                "reduce_scatter",
                                                "allreduce oneshot",
                                                "allreduce twoshot",
                                                "allreduce ring",
                                                "allreduce nccl"};
  return list;
}

bool takes(const std::string& feature, DType dtype) {
  static const std::set<std::string> floats = {
      "silu",  "gelu",    "sigmoid",   "tanh",    "exp",  "log",       "sqrt",
      "rsqrt", "sin",     "cos",       "erf",     "div",  "pow",       "swiglu",
      "geglu", "rmsnorm", "layernorm", "softmax", "rope", "attention", "mean"};
  if (feature == "barrier") return dtype == DType::F32;
  return is_float(dtype) || !floats.count(feature);
}

Plan plan_of(uint64_t seed) {
  // In a shuffled order, so that any part of the seeds has something of everything.
  static const std::vector<uint64_t> order = [] {
    std::vector<uint64_t> all(kCoveringSeeds);
    std::iota(all.begin(), all.end(), uint64_t{0});
    Random(1).shuffle(all);
    return all;
  }();
  uint64_t rest = order[seed % kCoveringSeeds];
  const auto digit = [&](uint64_t of) {
    const uint64_t n = rest % of;
    rest /= of;
    return n;
  };
  const uint64_t again = seed / kCoveringSeeds, second = digit(kGraphsOfRoles),
                 round = digit(kRounds), cls = rest;
  Random r(cls * 1000 + again);
  Plan p;
  p.world = kWorlds[digit(std::size(kWorlds))];
  p.dtype = kDTypes[digit(std::size(kDTypes))];
  p.dims = digit(2) == 1;
  const auto roles = [&](uint64_t n) {
    return static_cast<RolesKind>((cls + round + n) % kRolesKinds);
  };
  p.roles = roles(2 * second);
  if (second == 0) p.other_roles = roles(1);
  if (again > 0 && r.chance(15)) p.world = 6;
  std::vector<std::string> list;
  for (const std::string& f : features())
    if (takes(f, p.dtype)) list.push_back(f);
  r.shuffle(list);
  for (size_t i = round; i < list.size(); i += kRounds) p.forced.push_back(list[i]);
  return p;
}

}  // namespace maco::fuzz
