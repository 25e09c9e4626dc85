// The table of ops, in the order of the docs.
#include "ir/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/families.h"
#include "compiler/ops/op.h"

namespace maco::ops {

namespace {

// Adds the attributes `method` and `tile` to an op that can be cut in several ways; passes write
// them.
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
  const bool more = op.attrs.count("epilogue") > 0 || (def.passes_add && def.passes_add(op).inputs);
  return more ? -1 : def.max_in;
}
int most_outputs(const OpDef& def, const ir::Op& op) {
  return def.passes_add && def.passes_add(op).outputs ? -1 : def.max_out;
}
void add_attrs(std::string_view kind, const std::vector<AttrSpec>& attrs) {
  table().change(
      kind, [&](OpDef& def) { def.attrs.insert(def.attrs.end(), attrs.begin(), attrs.end()); });
}

void add_method(std::string_view kind, const std::string& method) {
  table().change(kind, [&](OpDef& def) {
    def.methods.push_back(method);
    for (AttrSpec& attr : def.attrs)
      if (attr.name == "method") attr.words.push_back(method);
  });
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
