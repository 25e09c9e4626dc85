// MACO as a library: task graphs, in which communication between GPUs is a task as much as
// computation, become one persistent CUDA kernel, compiled and run from C++.
//
//   auto graph = maco::Graph::read("mlp.maco").value();
//   auto kernel = maco::compile(graph).value();
//   auto session = maco::Session::open(kernel).value();
//   session.allocate().value();
//   session.run().value();
#pragma once

#include "maco/graph.h"    // IWYU pragma: export
#include "maco/kernel.h"   // IWYU pragma: export
#include "maco/model.h"    // IWYU pragma: export
#include "maco/result.h"   // IWYU pragma: export
#include "maco/session.h"  // IWYU pragma: export
#include "maco/version.h"  // IWYU pragma: export
