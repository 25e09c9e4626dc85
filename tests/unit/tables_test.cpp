// The tables of kernel.cu say each list of waits and signals once, and no zeros at the ends of
// rows.
#include <set>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
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

// What a kernel was made of, and its text.
struct Made {
  ir::Program program;
  std::string kernel;
};
Made made(const std::string& text, bool packets = false) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("g", text), diagnostics);
  REQUIRE(graph);
  passes::PipelineOptions options;
  options.target = "sm_90a";
  options.packets = packets;
  const auto result = passes::run_pipeline(*graph, options, diagnostics);
  REQUIRE(result.ok);
  const auto& program = std::get<ir::Program>(result.unit);
  return {program, api::emit_kernel(*graph, program, options, diagnostics)};
}

TEST_CASE("tasks that wait for and signal the same share rows of the tables") {
  const auto [program, kernel] = made(
      "graph g {\n  input x : bf16[64, 1024]\n  param w : bf16[512, 1024]\n"
      "  h = matmul(x, w, transpose_b = true)\n  output y = softmax(h)\n}\n",
      true);

  size_t uses = 0;
  for (const ir::Task& t : program.tasks) uses += t.waits.size() + t.signals.size();
  const std::vector<std::string> tasks = rows(kernel, "tasks"), syncs = rows(kernel, "syncs");
  CHECK(tasks.size() == program.tasks.size());
  CHECK(syncs.size() < uses);
  CHECK(std::set<std::string>(syncs.begin(), syncs.end()).size() == program.events.size());
  for (const std::string& row : tasks) CHECK_FALSE(row.ends_with(",0"));
  for (const std::string& row : syncs) CHECK_FALSE(row.ends_with(",0"));
}

TEST_CASE("a row says how far back the CTA writes what the task's loader reads") {
  const Made m = made(
      "graph g {\n  input x : bf16[2048, 2048]\n  param v : bf16[2048]\n"
      "  param w : bf16[8192, 2048]\n  param u : bf16[2048, 8192]\n  n = rmsnorm(x, v)\n"
      "  h = matmul(n, w, transpose_b = true)\n  output y = matmul(h, u, transpose_b = true)\n}\n");
  CHECK(m.kernel.find("kScouts = true") != std::string::npos);
  const std::vector<std::string> tasks = rows(m.kernel, "tasks");
  size_t row = 0, told = 0;
  for (const auto& stream : ir::streams(m.program))
    for (size_t place = 0; place < stream.size(); ++place, ++row) {
      const ir::Call& call = m.program[m.program[stream[place]].call];
      size_t back = 0;
      for (size_t before = place; before-- > 0 && back == 0;)
        for (const ir::Access& a : m.program[stream[before]].accesses)
          for (const ir::Load& load : call.loads)
            if (!load.ahead && a.writes() && a.region.buffer == call.operands[load.operand])
              back = place - before;
      std::vector<std::string> numbers = {""};
      for (const char c : tasks.at(row))
        if (c == ',')
          numbers.emplace_back();
        else
          numbers.back() += c;
      CHECK((numbers.size() < 8 ? 0 : std::stoul(numbers[7])) == back);
      told += back > 0 ? 1 : 0;
    }
  CHECK(row == tasks.size());
  CHECK(told > 100);
}

TEST_CASE("loaders don't run ahead of consumers where packets tell of data") {
  const std::string two =
      "graph g {\n  input x : bf16[1, 2048]\n  param w : bf16[2048, 2048]\n"
      "  param u : bf16[2048, 2048]\n  h = matmul(x, w, transpose_b = true)\n"
      "  output y = matmul(h, u, transpose_b = true)\n}\n";
  CHECK(made(two, true).kernel.find("kScouts = false") != std::string::npos);
}

}  // namespace
}  // namespace maco::test
