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

/// The tensor maps that a Program's loads go through, and which of them each is.
struct MapNumbers {
  std::vector<ir::ManifestMap> maps;
  std::vector<std::vector<int64_t>> of_call;  // by CallId, by operand; 0 where there is none
};
/// Numbers the maps of a Program whose calls are right.
MapNumbers number_maps(const ir::Program& program);

/// What a launch is given, in the manifest's order.
std::vector<ir::ManifestRange> dims_of(const ir::Graph& graph);
std::vector<ir::ManifestRange> scalars_of(const ir::Graph& graph);

/// Everything but code_hash.
ir::Manifest make_manifest(const ir::Graph& graph, const std::string& graph_text,
                           const ir::Program& program, const EventNumbers& events,
                           const MapNumbers& maps, const Options& options);

/// Index of each buffer among the caller's tensors, in the manifest's order; -1 for temporaries and
/// slots.
std::vector<int> tensor_numbers(const ir::Program& program);

}  // namespace maco::codegen
