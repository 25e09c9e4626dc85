// The table of ops, in the order of the docs.
#include "compiler/ops/families.h"
#include "compiler/ops/op.h"

namespace maco::ops {

const std::vector<OpDef>& all_ops() {
  static const std::vector<OpDef> table = [] {
    std::vector<OpDef> all;
    for (auto family : {matmul_ops, elementwise_ops, norm_ops, softmax_ops, rope_ops, attention_ops,
                        kv_append_ops, embedding_ops, reduction_ops, movement_ops, collective_ops})
      for (OpDef& def : family()) all.push_back(std::move(def));
    return all;
  }();
  return table;
}

const OpDef* find_op(std::string_view kind) {
  for (const OpDef& def : all_ops())
    if (def.kind == kind) return &def;
  return nullptr;
}

}  // namespace maco::ops
