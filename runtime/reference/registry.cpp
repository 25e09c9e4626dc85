// Every kind of op and the function that gives its meaning.
#include "runtime/reference/ops.h"

namespace maco::reference {

const OpEntry* find_entry(std::string_view kind) {
  static const std::vector<OpEntry> table = [] {
    std::vector<OpEntry> all;
    for (auto family :
         {matmul_entries, elementwise_entries, norm_entries, rope_entries, attention_entries,
          embedding_entries, reduction_entries, movement_entries, collective_entries})
      for (const OpEntry& e : family()) all.push_back(e);
    return all;
  }();
  for (const OpEntry& e : table)
    if (e.kind == kind) return &e;
  return nullptr;
}

bool only_moves(const ir::Op& op) {
  const OpEntry* entry = find_entry(op.kind);
  return !entry || entry->moves != Moves::Nothing;
}

std::vector<Move> moves_of(const ir::Graph& graph) {
  std::vector<Move> all;
  for (const ir::Op& op : graph.ops) {
    if (op.kind == "send")
      for (const ir::Op& recv : graph.ops)
        if (recv.kind == "recv") all.push_back({op.in[0], recv.out[0]});
    const OpEntry* entry = find_entry(op.kind);
    if (!entry || entry->moves == Moves::Nothing) continue;
    const size_t inputs = entry->moves == Moves::FirstInput ? 1 : op.in.size();
    for (size_t i = 0; i < inputs; ++i)
      for (ir::TensorId out : op.out) all.push_back({op.in[i], out});
  }
  return all;
}

}  // namespace maco::reference
