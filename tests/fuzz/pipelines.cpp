#include "tests/fuzz/pipelines.h"

#include <algorithm>

#include "compiler/frontend/frontend.h"
#include "compiler/passes/microbatches.h"
#include "compiler/pipeline/pipeline.h"
#include "ir/check.h"
#include "tests/fuzz/random_values.h"

namespace maco::fuzz {

namespace {

bool fits(const ir::Graph& graph) {
  ir::Diagnostics unheard;
  return passes::Microbatches::check(graph, unheard);
}
// A graph whose ranks pass data on may be refused because of the order of its microbatches.
bool can_be_ordered(const ir::Graph& graph) {
  ir::Diagnostics diagnostics;
  passes::PipelineOptions options;
  options.target = "cpu";
  options.stop_after = "tile";
  return passes::run_pipeline(graph, options, diagnostics).ok ||
         diagnostics.render().find("with microbatches one after the other") == std::string::npos;
}

}  // namespace

std::string with_pipeline(const std::string& text, uint64_t seed) {
  Random random(seed);
  ir::Diagnostics diagnostics;
  auto graph = frontend::parse_dsl(diagnostics.add_file("graph", text), diagnostics);
  MACO_CHECK(graph, diagnostics.render());
  if (graph->ops.empty()) return text;
  // Begins with one op, whose rows the other stages must have.
  graph->pipeline.emplace();
  auto& stages = graph->pipeline->stages;
  stages.emplace_back();
  size_t members = 0;
  for (size_t i = random.below(graph->ops.size()); i < graph->ops.size(); ++i) {
    if (members > 0 && random.chance(15)) continue;
    const bool opens = !stages.back().empty() && random.chance(40);
    if (opens) stages.emplace_back();
    stages.back().push_back(graph->ops[i].name);
    if (fits(*graph)) {
      ++members;
      continue;
    }
    stages.back().pop_back();
    if (opens) stages.pop_back();
  }
  if (members < 2) return text;
  graph->pipeline->microbatches = random.pick(std::vector<int64_t>{1, 2, 3, 4, 7, 16, 1000});
  return can_be_ordered(*graph) ? frontend::print_dsl(*graph) : text;
}

}  // namespace maco::fuzz
