// What a run will take of this machine's memory, before anything is allocated: the kernel of the
// system ends without a word a program that takes more than there is.
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
  // bytes of all ranks on the CPU target: the caller's tensors, temporaries, slots
  double session = 0;
  double reference = 0;  // what --check computes: every tensor of the graph on every rank
  double transfer = 0;   // the largest tensor, while it is made and copied
  double all() const { return session + reference + transfer; }
};
/// At least that much. Memory of ranks is for the dims' maxima; in the reference dims have the
/// values in `dims`, or their maxima. `on_host`: ranks run on the CPU target.
MemoryNeed memory_need(const ir::Graph& graph, const ir::Manifest& manifest, bool on_host,
                       bool check, const std::map<std::string, int64_t>& dims = {});

/// MemAvailable in the text of /proc/meminfo, in bytes.
std::optional<double> available_in(std::string_view meminfo);
/// What this machine has; nothing where it doesn't say.
std::optional<double> available_memory();

/// Empty if that fits, or where nobody knows; else "the run needs 137.4 GiB of memory (...), but
/// 20.1 GiB are available".
std::string why_too_large(const MemoryNeed& need, std::optional<double> available);

}  // namespace maco::tools
