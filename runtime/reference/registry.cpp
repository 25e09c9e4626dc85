// Every kind of op and the function that gives its meaning.
#include "runtime/reference/ops.h"

namespace maco::reference {

const OpEntry* find_entry(std::string_view kind) {
  static const std::vector<OpEntry> table = [] {
    std::vector<OpEntry> all;
    for (auto family : {matmul_entries, elementwise_entries, norm_entries, rope_entries, attention_entries,
                        embedding_entries, reduction_entries, movement_entries, collective_entries})
      for (const OpEntry& e : family()) all.push_back(e);
    return all;
  }();
  for (const OpEntry& e : table)
    if (e.kind == kind) return &e;
  return nullptr;
}

}  // namespace maco::reference
