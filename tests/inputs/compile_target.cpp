// A graph, compiled to kernel.cu, without users' kernels.
#include <algorithm>

#include "compiler/api/compile.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  if (size > 4096) return 0;
  ir::Diagnostics diagnostics;
  auto graph = api::read_graph("input", inputs::text_of(data, size), diagnostics);
  if (!graph || std::any_of(graph->ops.begin(), graph->ops.end(),
                            [](const ir::Op& op) { return op.kind == "cuda"; }))
    return 0;
  api::Options options;
  options.sms = 8;
  const auto compiled = api::compile(std::move(*graph), options, diagnostics);
  inputs::require(compiled.has_value() != diagnostics.has_errors(), "an error is a kernel less");
  return 0;
}
