// The table of ops, in the order of the docs.
#include "ir/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/families.h"
#include "compiler/ops/op.h"

namespace maco::ops {

namespace {

// Every op that can be cut in several ways says how in these, which passes write.
OpDef with_cut(OpDef def) {
  if (!def.methods.empty())
    def.attrs.push_back({"method", AttrType::Word, false, "", def.methods, true});
  if (!def.tile_axes.empty()) def.attrs.push_back({"tile", AttrType::IntList, false, "", {}, true});
  return def;
}

ir::Registry<OpDef>& table() {
  static ir::Registry<OpDef> ops(&OpDef::kind, [] {
    std::vector<OpDef> all;
    for (auto family : {matmul_ops, elementwise_ops, norm_ops, softmax_ops, rope_ops, attention_ops,
                        attention_step_ops, kv_append_ops, embedding_ops, reduction_ops,
                        movement_ops, collective_ops, cuda_ops})
      for (OpDef& def : family()) all.push_back(with_cut(std::move(def)));
    return all;
  }());
  return ops;
}

}  // namespace

std::vector<OpDef> all_ops() { return table().all(); }
const OpDef* find_op(std::string_view kind) { return table().find(kind); }
int most_inputs(const OpDef& def, const ir::Op& op) {
  return op.attrs.count("epilogue") + op.attrs.count("norm_eps") > 0 ? -1 : def.max_in;
}
int most_outputs(const OpDef& def, const ir::Op& op) {
  return op.attrs.count("append_at") > 0 ? -1 : def.max_out;
}

std::string synonym_of(std::string_view kind) {
  // In lower case and without '_', by which projects differ.
  static const std::map<std::string, std::string, std::less<>> synonyms = {
      {"allgatherintotensor", "allgather"},
      {"alltoallsingle", "alltoall"},
      {"a2a", "alltoall"},
      {"bcast", "broadcast"},
      {"cat", "concat"},
      {"clone", "copy"},
      {"collectivepermute", "ring_shift"},
      {"dot", "matmul"},
      {"elementwiseadd", "add"},
      {"embed", "embedding"},
      {"flashattention", "attention"},
      {"gather", "embedding"},
      {"gemm", "matmul"},
      {"kvcacheappend", "kv_append"},
      {"layernormalization", "layernorm"},
      {"linear", "matmul"},
      {"logistic", "sigmoid"},
      {"mm", "matmul"},
      {"multiply", "mul"},
      {"permute", "transpose"},
      {"pmax", "allreduce"},
      {"pmean", "allreduce"},
      {"ppermute", "ring_shift"},
      {"psum", "allreduce"},
      {"psumscatter", "reduce_scatter"},
      {"reducemax", "max"},
      {"reducemean", "mean"},
      {"reducescattertensor", "reduce_scatter"},
      {"reducesum", "sum"},
      {"rmsnormalization", "rmsnorm"},
      {"rotary", "rope"},
      {"rotaryembedding", "rope"},
      {"scaleddotproductattention", "attention"},
      {"sdpa", "attention"},
      {"siluandmul", "swiglu"},
      {"subtract", "sub"},
      {"swish", "silu"},
      {"view", "reshape"},
  };
  std::string plain;
  for (char c : kind)
    if (c != '_' && c != '.') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const OpDef& def : all_ops()) {
    std::string own = def.kind;
    own.erase(std::remove(own.begin(), own.end(), '_'), own.end());
    if (!def.internal && own == plain) return def.kind;
  }
  const auto found = synonyms.find(plain);
  return found == synonyms.end() ? "" : found->second;
}

std::vector<std::string> words_of(const OpDef& op, const AttrSpec& attr,
                                  const std::vector<ir::UserAlgorithm>& own) {
  std::vector<std::string> words = attr.words;
  if (!op.collective || attr.name != "algorithm") return words;
  for (std::string& word : algorithm_words(op.kind))
    if (std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(std::move(word));
  for (const ir::UserAlgorithm& a : own)
    if (std::find(words.begin(), words.end(), a.name) == words.end()) words.push_back(a.name);
  return words;
}

std::string register_op(OpDef def) {
  const std::string kind = def.kind;
  if (kind.empty()) return "an op needs a kind";
  if (!def.infer || !def.tile)
    return fmt::format("op '{}' needs a shape rule and a tile rule", kind);
  if (!table().add(with_cut(std::move(def)))) return fmt::format("op '{}' is there already", kind);
  return "";
}

}  // namespace maco::ops
