// Controls of grammar_test.cpp: the Programs that it changes are right unchanged, and damage that
// runs is detected. Otherwise a run that can find nothing would look the same.
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>

#include "compiler/frontend/dumps.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/proofs/grammar_judge.h"
#include "tests/proofs/grammar_subjects.h"

namespace maco::proofs {
namespace {

/// A Program with some text in place of another, whatever the proofs say of it.
Runnable damaged(const std::vector<GraphSubject>& subjects, const std::string& from,
                 const std::string& to) {
  for (const GraphSubject& s : subjects) {
    const size_t at = s.program.find(from);
    if (at == std::string::npos) continue;
    std::string text = s.program;
    text.replace(at, from.size(), to);
    ir::Diagnostics diagnostics;
    auto program = frontend::parse_program(diagnostics.add_file("damaged", text), diagnostics);
    INFO(diagnostics.render());
    REQUIRE(program);
    Runnable r{&s, std::move(*program), {}, 1};
    r.kernel = api::emit_kernel(s.graph, r.program, s.options, diagnostics);
    INFO(diagnostics.render());
    REQUIRE_FALSE(r.kernel.empty());
    r.timeout_ms = 500;
    return r;
  }
  FAIL("no Program has " << from);
  return {};
}

std::vector<std::string> run_all(const std::vector<Runnable>& list) {
  constexpr size_t kAtOnce = 8;
  constexpr int kWorkers = 2, kSeconds = 60;
  std::vector<std::string> results(list.size());
  const auto said = in_workers((list.size() + kAtOnce - 1) / kAtOnce, kWorkers, [&](size_t batch) {
    std::vector<std::string> kernels;
    const size_t first = batch * kAtOnce, last = std::min(list.size(), first + kAtOnce);
    for (size_t i = first; i < last; ++i) kernels.push_back(list[i].kernel);
    runtime::Status status;
    const auto library =
        runtime::compile_cpu_kernels(kernels, {.check_access = true, .quick = true}, status);
    std::string all;
    for (size_t i = first; i < last; ++i) {
      if (!library) {
        all += status.message + '\0';
        continue;
      }
      const Ended e = in_child([&] { return run(list[i], library, i - first); }, kSeconds);
      all += (e.fault.empty() ? e.said : e.fault) + '\0';
    }
    return all;
  });
  size_t i = 0;
  for (const std::string& batch : said)
    for (size_t at = 0; at < batch.size(); ++i) {
      results.at(i) = batch.c_str() + at;
      at += results[i].size() + 1;
    }
  REQUIRE(i == list.size());
  return results;
}

}  // namespace

TEST_CASE("the Programs that are changed are right as they are") {
  const std::vector<GraphSubject> subjects = graph_subjects();
  std::vector<Runnable> list;
  for (const GraphSubject& s : subjects) {
    ir::Diagnostics diagnostics;
    auto program = frontend::parse_program(diagnostics.add_file(s.name, s.program), diagnostics);
    REQUIRE(program);
    REQUIRE(judge(s, s.program).word == "same Program");
    list.push_back({&s, std::move(*program), {}, 1});
    list.back().kernel = api::emit_kernel(s.graph, list.back().program, s.options, diagnostics);
  }
  const auto results = run_all(list);
  for (size_t i = 0; i < list.size(); ++i) {
    INFO(subjects[i].name);
    CHECK(results[i] == "");
  }
  std::cout << fmt::format("{} Programs are right\n", results.size());
}

TEST_CASE("damage that runs is seen") {
  const std::vector<GraphSubject> subjects = graph_subjects();
  const auto results = run_all({
      damaged(subjects, "t0 = exp(%0) : f32", "t0 = silu(%0) : f32"),
      damaged(subjects, "(x, w, h) loads", "(w, x, h) loads"),
      damaged(subjects, "; signal \"h tile 0\"", ""),
      damaged(subjects, "; wait \"h tile 0\"", ""),
  });
  CHECK_THAT(results[0], test::Contains("relative error"));
  CHECK_THAT(results[1], test::Contains("does not declare"));
  CHECK_THAT(results[2], test::Contains("without progress"));
  CHECK_THAT(results[3], test::Contains(" is expected, at "));  // the poison
}

TEST_CASE("a process that crashes or hangs is one result") {
  CHECK(in_child([] { return "fine"; }, 10).said == "fine");
  CHECK(in_child([]() -> std::string { std::abort(); }, 10).fault == "crashed: signal 6");
  CHECK(in_child([]() -> std::string { std::_Exit(3); }, 10).fault == "ended early: status 3");
  const auto forever = []() -> std::string {
    for (volatile bool on = true; on;) {
    }
    return "";
  };
  CHECK(in_child(forever, 1).fault == "hung: no result after 1 s");
}

}  // namespace maco::proofs
