// ir::Program -> kernel.cu: one self-contained source that nvcc, NVRTC and a host C++ compiler take
// as it is.
#pragma once

#include <cstdint>
#include <string>

#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/manifest.h"
#include "ir/program.h"

namespace maco::codegen {

struct Options {
  std::string command_line;  // recorded in the manifest: the options that shaped the kernel
};

/// The source. `graph` is the user's graph (inferred), whose text the manifest has; `program` is
/// synced. Deterministic: the same arguments give the same bytes. Reports an error and
/// returns "" if a call is wrong (check_calls) or the Program is beyond a table's range.
std::string emit(const ir::Graph& graph, const ir::Program& program, const Options& options,
                 ir::Diagnostics& diagnostics);

/// Holds each call against what compiler/functions says of its function, and reports what is wrong:
/// texts of Programs may be edited. emit() does so too.
bool check_calls(const ir::Program& program, ir::Diagnostics& diagnostics);

/// The first line of the generated part: before it stand manifest and device headers.
inline constexpr const char* kGeneratedMarker = "// ======== generated from the graph ========";

}  // namespace maco::codegen
