// The tables of kernel.cu say each list of waits and signals once, and no zeros at the ends of
// rows.
#include <set>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/passes/pipeline.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

// The rows of a table of kernel.cu, without their braces.
std::vector<std::string> rows(const std::string& kernel, const std::string& table) {
  const size_t begin = kernel.find(" " + table + "[] ="), end = kernel.find("};", begin);
  REQUIRE(end != std::string::npos);
  std::vector<std::string> found;
  for (size_t at = kernel.find('{', begin) + 1; (at = kernel.find('{', at)) < end; ++at)
    found.push_back(kernel.substr(at + 1, kernel.find('}', at) - at - 1));
  return found;
}

TEST_CASE("tasks that wait for and signal the same share rows of the tables") {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(
      diagnostics.add_file("g",
                           "graph g {\n  input x : bf16[64, 1024]\n  param w : bf16[512, 1024]\n"
                           "  h = matmul(x, w, transpose_b = true)\n  output y = softmax(h)\n}\n"),
      diagnostics);
  REQUIRE(graph);
  passes::PipelineOptions options;
  options.target = "sm_90a";
  const auto result = passes::run_pipeline(*graph, options, diagnostics);
  REQUIRE(result.ok);
  const auto& program = std::get<ir::Program>(result.unit);
  const std::string kernel = api::emit_kernel(*graph, program, options, diagnostics);

  size_t uses = 0;
  for (const ir::Task& t : program.tasks) uses += t.waits.size() + t.signals.size();
  const std::vector<std::string> tasks = rows(kernel, "tasks"), syncs = rows(kernel, "syncs");
  CHECK(tasks.size() == program.tasks.size());
  CHECK(syncs.size() < uses);
  CHECK(std::set<std::string>(syncs.begin(), syncs.end()).size() == program.events.size());
  for (const std::string& row : tasks) CHECK_FALSE(row.ends_with(",0"));
  for (const std::string& row : syncs) CHECK_FALSE(row.ends_with(",0"));
}

}  // namespace
}  // namespace maco::test
