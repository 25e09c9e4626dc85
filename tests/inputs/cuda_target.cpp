// A CUDA source, of which a graph is made.
#include "compiler/api/compile.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  const inputs::MemoryFile memory(data, size);
  ir::Diagnostics diagnostics;
  const std::string graph = api::graph_of_kernel(memory.path(), "", {}, diagnostics);
  inputs::require(graph.empty() == diagnostics.has_errors(), "an error is a graph less");
  return 0;
}
