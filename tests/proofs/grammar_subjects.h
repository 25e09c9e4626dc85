// Small graphs over every op, dtype, algorithm and number of ranks from 1 to 8, compiled.
#pragma once

#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "runtime/host/session.h"

namespace maco::proofs {

struct GraphSubject {
  std::string name;
  ir::Graph graph;  // inferred
  api::Options options;
  std::string program;  // the text
  std::string code;     // kernel.cu without its manifest
  std::string launch;   // what of the manifest a host launches by
  std::vector<runtime::LaunchValues> launches;
};

/// Fails the test case where one can't be compiled.
std::vector<GraphSubject> graph_subjects();

/// What they should have and have not, a line each: an op of the registry, a dtype, an algorithm, a
/// number of ranks.
std::string missing_of(const std::vector<GraphSubject>& subjects);

}  // namespace maco::proofs
