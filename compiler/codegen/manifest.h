// The manifest of a Program.
#pragma once

#include "compiler/codegen/codegen.h"

namespace maco::codegen {

/// Events by kind: the index of each in its table of counters (Local) or words (Peer).
struct EventNumbers {
  std::vector<uint32_t> number;  // by EventId; unused for packets
  int64_t local = 0, peer = 0;
};
EventNumbers number_events(const ir::Program& program);

/// Everything but code_hash.
ir::Manifest make_manifest(const ir::Graph& graph, const std::string& graph_text,
                           const ir::Program& program, const EventNumbers& events,
                           const Options& options);

/// Index of each buffer among the caller's tensors, in the manifest's order; -1 for temporaries and
/// slots.
std::vector<int> tensor_numbers(const ir::Program& program);

}  // namespace maco::codegen
