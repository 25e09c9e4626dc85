// Every kind of op and the function that gives its meaning.
#include <fmt/format.h>

#include "ir/registry.h"
#include "runtime/reference/ops.h"

namespace maco::reference {

namespace {

ir::Registry<OpEntry>& table() {
  static ir::Registry<OpEntry> entries(&OpEntry::kind, [] {
    std::vector<OpEntry> all;
    for (auto family :
         {matmul_entries, elementwise_entries, norm_entries, rope_entries, attention_entries,
          embedding_entries, reduction_entries, movement_entries, collective_entries, cuda_entries})
      for (OpEntry& e : family()) all.push_back(std::move(e));
    return all;
  }());
  return entries;
}

}  // namespace

const OpEntry* find_entry(std::string_view kind) { return table().find(kind); }

std::string register_op(OpEntry entry) {
  const std::string kind = entry.kind;
  if (kind.empty()) return "the meaning of an op needs its kind";
  if (!entry.eval == !entry.collective)
    return fmt::format("the meaning of '{}' is that of one rank or of all", kind);
  if (!table().add(std::move(entry))) return fmt::format("'{}' has a meaning already", kind);
  return "";
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
