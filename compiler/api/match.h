// Whether a Program or a kernel that came from elsewhere belongs to a graph.
#pragma once

#include "compiler/pipeline/options.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/manifest.h"
#include "ir/program.h"

namespace maco::api {

/// Whether a Program that the compiler didn't make of `graph` here can become its kernel. It must
/// be synced, have the graph's number of ranks, tensors and values, and call existing device
/// functions. Reports if not. Whether the Program is right is the verifier's to check.
bool check_program(const ir::Graph& graph, const ir::Program& program,
                   const passes::PipelineOptions& options, ir::Diagnostics& diagnostics);

/// Whether a kernel's manifest, which anybody may have edited, still matches the graph in it.
/// Reports if not.
bool check_manifest(const ir::Graph& graph, const ir::Manifest& manifest,
                    ir::Diagnostics& diagnostics);

}  // namespace maco::api
