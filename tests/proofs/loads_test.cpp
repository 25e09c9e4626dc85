// Mutants of loads: each is refused, by the verifier or by the function's rules for its operands,
// except those that leave a loader less freedom. These are run, and give the same bytes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/verify/verify.h"
#include "runtime/cpu/session.h"
#include "tests/catch.h"
#include "tests/compiled.h"
#include "tests/proofs/mutations.h"

namespace maco::proofs {
namespace {

using ir::Program;
using test::Contains;

// Both kinds of loads: w and v are the caller's, and loaded ahead; a is a task's, and isn't.
constexpr const char* kGraph = R"(graph g {
  input x : f32[8, 64]
  input u : f32[64, 96]
  param w : f32[64, 64]
  param v : f32[96, 64]
  h = matmul(x, w)
  a = relu(u)
  m = matmul(h, a)
  output y = matmul(m, v)
})";

api::Compiled compiled(bool load_ahead = true) {
  api::Options options = test::cpu();
  options.load_ahead = load_ahead;
  return test::compiled(kGraph, options);
}

std::string kernel_of(const api::Compiled& c, const Program& p) {
  ir::Diagnostics diagnostics;
  const std::string kernel = codegen::emit(c.graph, p, {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE_FALSE(kernel.empty());
  return kernel;
}

/// The output of two launches, in an order of tasks that `seed` gives.
std::vector<float> run(const std::shared_ptr<runtime::CpuLibrary>& library, size_t index,
                       const std::string& kernel, uint64_t seed) {
  runtime::Status status;
  runtime::SessionOptions options;
  options.replay = seed;
  const auto session = runtime::make_cpu_session(library, index, kernel, options, status);
  INFO(status.message);
  REQUIRE(session);
  const auto& tensors = session->manifest().tensors;
  std::vector<float> results;
  for (int launch = 0; launch < 2; ++launch) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::vector<float> values(size_t{64} * 96);
      for (size_t k = 0; k < values.size(); ++k)
        values[k] = static_cast<float>((k * 7 + i * 3 + static_cast<size_t>(launch)) % 13) - 6.0f;
      if (tensors[i].name != "y")
        REQUIRE(session->write(0, i, values.data(),
                               sizeof(float) * (tensors[i].name == "x"   ? 8 * 64
                                                : tensors[i].name == "w" ? 64 * 64
                                                                         : 64 * 96)));
    }
    REQUIRE(session->launch({}));
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name != "y") continue;
      std::vector<float> y(size_t{8} * 64);
      REQUIRE(session->read(0, i, y.data(), sizeof(float) * y.size()));
      results.insert(results.end(), y.begin(), y.end());
    }
  }
  return results;
}

TEST_CASE("a wrong load is refused; a loader with less freedom gives the same bytes") {
  const api::Compiled original = compiled();
  const Program& p = original.program;
  std::vector<std::string> accepted, kernels = {kernel_of(original, p)};
  int by_verifier = 0, by_function = 0;
  for (const Mutation& m : mutations(p, Kind::Load)) {
    Program mutant = p;
    m.apply(mutant);
    INFO(m.what);
    ir::Diagnostics said;
    if (!verify::verify(mutant, said)) {
      CHECK_THAT(said.all().at(0).message, Contains("resources: "));
      ++by_verifier;
    } else if (!codegen::check_calls(mutant, said)) {
      CHECK_THAT(said.all().at(0).message,
                 Contains("loads operand ") || Contains("doesn't say how operand "));
      ++by_function;
    } else {
      accepted.push_back(m.what);
      kernels.push_back(kernel_of(original, mutant));
    }
  }
  CHECK(by_verifier >= 40);
  CHECK(by_function >= 6);
  CHECK(accepted == std::vector<std::string>{"the load of 'w' by 'h' comes behind the waits",
                                             "the load of 'v' by 'y' comes behind the waits",
                                             "the ring has a page less"});

  runtime::Status status;
  const auto library = runtime::compile_cpu_kernels(kernels, {}, status);
  INFO(status.message);
  REQUIRE(library);
  const std::vector<float> expected = run(library, 0, kernels[0], 1);
  CHECK(std::count(expected.begin(), expected.end(), 0.0f) < 100);
  for (size_t i = 1; i < kernels.size(); ++i)
    for (const uint64_t seed : {1, 2, 3}) {
      INFO(accepted[i - 1]);
      CHECK(kernels[i] != kernels[0]);
      CHECK(run(library, i, kernels[i], seed) == expected);
    }
}

TEST_CASE("loads that all come behind their waits are what --no-load-ahead makes") {
  api::Compiled ahead = compiled();
  for (ir::Call& c : ahead.program.calls)
    for (ir::Load& l : c.loads) l.ahead = false;
  CHECK(ahead.program == compiled(false).program);
}

/// Changes each load of `p`, all of which come in boxes. Returns how many mutants the verifier
/// refuses, and how many the device function.
std::pair<int, int> refused_boxes(const Program& p) {
  using Box = ir::Load::Box;
  const std::vector<std::pair<const char*, void (*)(ir::Load&)>> changes = {
      {"no box", [](ir::Load& l) { l.box.reset(); }},
      {"rows", [](ir::Load& l) { l.box->rows /= 2; }},
      {"no rows", [](ir::Load& l) { l.box->rows = 0; }},
      {"many rows", [](ir::Load& l) { l.box->rows = 257; }},
      {"columns", [](ir::Load& l) { l.box->cols = 32; }},
      {"odd columns", [](ir::Load& l) { l.box->cols = 63; }},
      {"wide", [](ir::Load& l) { l.box->cols = 128; }},
      {"pitch", [](ir::Load& l) { l.box->pitch += 8; }},
      {"odd pitch", [](ir::Load& l) { l.box->pitch += 1; }},
      {"a run", [](ir::Load& l) { l.box->run = l.box->pitch; }},
      {"odd runs", [](ir::Load& l) { l.box->run = 5; }},
      {"no pitch", [](ir::Load& l) { l.box->pitch = 0; }},
      {"all", [](ir::Load& l) { l.box = Box{-1, -1, -1}; }},
      {"a page more", [](ir::Load& l) { ++l.pages; }},
      {"less of a page", [](ir::Load& l) { l.page_bytes -= 128; }},
  };
  int by_verifier = 0, by_function = 0;
  for (size_t c = 0; c < p.calls.size(); ++c)
    for (size_t i = 0; i < p.calls[c].loads.size(); ++i)
      for (const auto& [what, change] : changes) {
        Program mutant = p;
        REQUIRE(mutant.calls[c].loads[i].box);
        change(mutant.calls[c].loads[i]);
        INFO(p.calls[c].op << ", load " << i << ": " << what);
        ir::Diagnostics said;
        if (!verify::verify(mutant, said)) {
          CHECK_THAT(said.all().at(0).message, Contains("resources: "));
          ++by_verifier;
        } else {
          CHECK_FALSE(codegen::check_calls(mutant, said));
          ++by_function;
        }
      }
  return {by_verifier, by_function};
}

TEST_CASE("boxes are what the function asks for, and what a map can describe") {
  const api::Compiled original = test::compiled(R"(graph g {
  input x : bf16[48, 64]
  param w : bf16[96, 64]
  param v : bf16[96, 72]
  h = matmul(x, w, transpose_b = true)
  output y = matmul(h, v)
})",
                                                test::cpu());
  const Program& p = original.program;
  CHECK(refused_boxes(p) == std::pair(38, 22));
  // With few rows: boxes of long rows.
  CHECK(refused_boxes(test::compiled(R"(graph g {
  input x : bf16[2, 600]
  param w : bf16[96, 600]
  output y = matmul(x, w, transpose_b = true)
})",
                                     test::cpu())
                          .program) == std::pair(10, 5));
  Program misplaced = p;
  misplaced.uses.scratch_bytes += 512;
  ir::Diagnostics said;
  CHECK_FALSE(verify::verify(misplaced, said));
  CHECK_THAT(said.all().at(0).message, Contains("begin on a multiple of 1024"));
}

}  // namespace
}  // namespace maco::proofs
