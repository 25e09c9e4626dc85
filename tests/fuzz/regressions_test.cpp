// Graphs on which something once went wrong; each test says what.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "compiler/frontend/frontend.h"
#include "tests/catch.h"
#include "tests/fuzz/run_case.h"
#include "tests/paths.h"

namespace maco::fuzz {
namespace {

// Every dim and scalar at its maximum, at its minimum and in between.
std::vector<runtime::LaunchValues> launches_of(const ir::Graph& g) {
  std::vector<runtime::LaunchValues> launches(3);
  const auto set = [&](const std::string& name, int64_t lo, int64_t hi) {
    launches[0][name] = hi;
    launches[1][name] = lo;
    launches[2][name] = (lo + hi) / 2;
  };
  for (const ir::Dim& d : g.dims) set(d.name, d.min, d.max);
  for (const ir::Tensor& t : g.tensors)
    if (t.kind == ir::TensorKind::Scalar) set(t.name, t.range_lo, t.range_hi - 1);
  return launches;
}

}  // namespace

TEST_CASE("graphs that went wrong once") {
  report_crashes();
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/fuzz/regressions")))
    if (entry.path().extension() == ".maco") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  REQUIRE(!paths.empty());
  for (const bool check_access : {false, true}) {
    std::vector<Case> cases;
    for (const auto& path : paths) {
      std::ifstream in(path, std::ios::binary);
      Case c;
      c.name = path.filename().string();
      c.text.assign(std::istreambuf_iterator<char>(in), {});
      c.seed = 5 + cases.size();
      ir::Diagnostics diagnostics;
      const auto graph = frontend::parse_dsl(diagnostics.add_file(c.name, c.text), diagnostics);
      INFO(diagnostics.render());
      REQUIRE(graph);
      c.launches = launches_of(*graph);
      cases.push_back(std::move(c));
    }
    const BatchResult r = run_batch(cases, {.check_access = check_access});
    for (size_t i = 0; i < cases.size(); ++i) {
      INFO(cases[i].name << ": " << r.errors[i]);
      CHECK(r.errors[i].empty());
    }
  }
}

// A function's static table is shared by the whole process if the loader allows that, whichever
// library it came from.
TEST_CASE("kernels that are loaded at once share nothing") {
  std::vector<Prepared> prepared;
  std::vector<std::shared_ptr<runtime::CpuLibrary>> libraries;
  for (const char* theta : {"10000", "500000"}) {
    Case c;
    c.name = std::string("theta ") + theta;
    c.text = std::string(
                 "graph rotary {\n  input x : f32[7, 64]\n  input p : i32[7]\n  output y = rope(x, "
                 "p, head_dim = 64, theta = ") +
             theta + ")\n}\n";
    c.launches = {{}};
    prepared.push_back(prepare(std::move(c), {}));
    INFO(prepared.back().error);
    REQUIRE(prepared.back().error.empty());
    runtime::Status status;
    libraries.push_back(runtime::compile_cpu_kernels({prepared.back().kernel}, {}, status));
    INFO(status.message);
    REQUIRE(libraries.back());
  }
  for (size_t i = 0; i < prepared.size(); ++i) {
    Results results;
    CHECK(run(prepared[i], libraries[i], 0, false, results) == "");
  }
}

}  // namespace maco::fuzz
