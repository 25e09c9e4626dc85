// Whether a Program or a kernel that came from elsewhere is of a graph.
#pragma once

#include "compiler/passes/options.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/manifest.h"
#include "ir/program.h"

namespace maco::api {

/// Whether a Program that the compiler didn't make of `graph` here can become its kernel: synced,
/// for as many ranks, over the graph's tensors and values, of device functions that there are.
/// Reports if not. Whether it is right is the verifier's.
bool check_program(const ir::Graph& graph, const ir::Program& program,
                   const passes::PipelineOptions& options, ir::Diagnostics& diagnostics);

/// Whether a kernel's manifest, which anybody may have edited, is still that of the graph in it.
/// Reports if not.
bool check_manifest(const ir::Graph& graph, const ir::Manifest& manifest,
                    ir::Diagnostics& diagnostics);

}  // namespace maco::api
