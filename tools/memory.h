// How much memory a run will take on this machine, before anything is allocated: the system kills a
// program that takes more than there is without a message.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ir/manifest.h"

namespace maco::tools {

struct MemoryNeed {
  // Bytes of all ranks on the CPU target: the caller's tensors, temporaries, slots.
  double session = 0;
  double reference = 0;  // what --check computes: every tensor of the graph on every rank
  double transfer = 0;   // the largest tensor, while it is made and copied
  double all() const { return session + reference + transfer; }
};
/// A lower limit. Memory of ranks is for the dims' maxima; in the reference dims have the values in
/// `dims`, or their maxima. `on_host`: ranks run on the CPU target.
MemoryNeed memory_need(const ir::Graph& graph, const ir::Manifest& manifest, bool on_host,
                       bool check, const std::map<std::string, int64_t>& dims = {});

/// MemAvailable in the text of /proc/meminfo, in bytes.
std::optional<double> available_in(std::string_view meminfo);
/// The memory available on this machine; nothing if it doesn't tell.
std::optional<double> available_memory();

/// "" if that fits, or if nothing is known; else "the run needs 137.4 GiB of memory (...), but 20.1
/// GiB are available".
std::string why_too_large(const MemoryNeed& need, std::optional<double> available);

}  // namespace maco::tools
