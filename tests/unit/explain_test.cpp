// By which path one task happens before another.
#include "compiler/verify/explain.h"

#include <fstream>
#include <iterator>
#include <set>

#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "tests/paths.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using namespace verify;

std::string told(const ir::Program& p, const std::string& a, const std::string& b, bool ordered) {
  std::string error;
  const auto x = find_instance(p, a, error), y = find_instance(p, b, error);
  INFO(error);
  REQUIRE(x);
  REQUIRE(y);
  const Explanation e = explain(p, *x, *y);
  CHECK(e.ordered == ordered);
  return e.text;
}

TEST_CASE("a path is told edge by edge") {
  const ir::Program sum = parse_text(kSum);
  CHECK(told(sum, "t0@1", "y (combine)@0", true) ==
        "matmul 'down' tile 0 (rank 1) happens before exchange 'y' (combine) tile 0 (rank 0):\n"
        "  t0 matmul 'down' tile 0 (rank 1): task 0 of CTA 0\n"
        "    local event 'done', 2 signals\n"
        "  t2 exchange 'y' (put) tile 0 (rank 1): task 0 of CTA 2\n"
        "    peer event 'arrived'\n"
        "  t3 exchange 'y' (combine) tile 0 (rank 0): task 1 of CTA 2\n");
  CHECK_THAT(told(sum, "t2", "t3", true), Contains("the stream of the CTA goes on"));
  CHECK_THAT(told(sum, "t4", "t1+1", true),
             Contains("a launch of the rank follows the one before"));
  CHECK_THAT(told(sum, "t3", "t0", false), Contains("the other way round: matmul 'down' tile 0"));
  CHECK_THAT(told(sum, "t3", "t3", false), Contains("is one task"));
}

TEST_CASE("what nothing orders is told with what is nearest before and after both") {
  const ir::Program sum = parse_text(kSum);
  CHECK(
      told(sum, "t0", "t1", false) ==
      "nothing orders matmul 'down' tile 0 (rank 0) and matmul 'down' tile 1 (rank 0): both could "
      "run at the same time\n"
      "  both come before t2 exchange 'y' (put) tile 0 (rank 0): task 0 of CTA 2\n");
  CHECK_THAT(told(sum, "t4@0", "t3@1", false),
             Contains("both come after t2 exchange 'y' (put) tile 0 (rank 0)"));
  // Without its wait the reader of p is ordered after neither tile.
  const ir::Program dropped = parse_text(with(kSum, "wait done; signal arrived", "signal arrived"));
  told(dropped, "t0", "t2", false);
  told(sum, "t0", "t2", true);
}

TEST_CASE("packets order, and say that they show nothing else") {
  const ir::Program packets =
      parse_text(with(with(kSum, "rotation=2 offset", "rotation=2 packets offset"), "arrived peer",
                      "arrived packet"));
  CHECK_THAT(told(packets, "t2@1", "t3@0", true),
             Contains("packets of event 'arrived', which show their own data only"));
  // Where another path says the same, that is the one.
  CHECK_THAT(told(packets, "t2@0", "t3@0", true), !Contains("packets"));
}

TEST_CASE("tasks are found by every name that reports use") {
  const ir::Program sum = parse_text(kSum);
  struct Case {
    const char* name;
    Instance is;
  };
  const Case cases[] = {
      {"t3", {3, 0, 0}},
      {"3@1+2", {3, 1, 2}},
      {"3 +2 @1", {3, 1, 2}},
      {"down tile 1", {1, 0, 0}},
      {"matmul 'down' tile 1 (rank 1, launch 1)", {1, 1, 1}},
      {"exchange 'y' (put) tile 0 (rank 1)", {2, 1, 0}},
      {"y (put)", {2, 0, 0}},
      {"y (put) tile 0@1", {2, 1, 0}},
      {"out", {4, 0, 0}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string error;
    const auto found = find_instance(sum, c.name, error);
    CHECK(error == "");
    CHECK((found && *found == c.is));
  }
  // A task that rank 0 leaves out is meant where it runs.
  std::string error;
  const ir::Program one = parse_text(
      with(kSum, "t1 c0#1 compute sm=1 place=0:", "t1 c0#1 compute sm=1 place=0 ranks=0x2:"));
  CHECK(find_instance(one, "t1", error)->rank == 1);
  const std::pair<const char*, const char*> refused[] = {
      {"down", "'down' may be any of 2 tasks:\n  t0 matmul 'down' tile 0\n  t1 matmul"},
      {"dowm", "no task is called 'dowm'; did you mean 'down'?"},
      {"t5", "no task is called 't5'"},
      {"t1@2", "there is no rank 2 of 2"},
      {"t1@0", "t1 doesn't run on rank 0"},
  };
  for (const auto& [name, reason] : refused) {
    CHECK_FALSE(find_instance(one, name, error));
    CHECK_THAT(error, Contains(reason));
  }
}

TEST_CASE("only a synced Program can be asked") {
  ir::Diagnostics diagnostics;
  CHECK_FALSE(check_explainable(parse_text(with(kSum, "synced", "scheduled")), diagnostics));
  CHECK_THAT(diagnostics.render(), Contains("the Program is scheduled"));
  CHECK_FALSE(
      check_explainable(parse_text(with(kSum, "sm=1 place=0", "sm=9 place=0")), diagnostics));
}

// The two directions are written apart: they have the same edges.
TEST_CASE("what comes before and what comes after say the same") {
  using Packets = Precedence::Packets;
  for (const char* name : {"tp_mlp.maco", "decode_layer.maco", "barrier.maco", "alltoall.maco"}) {
    CAPTURE(name);
    std::ifstream in(test::source_path("examples/graphs/") + name);
    ir::Diagnostics d;
    const auto graph =
        frontend::parse_graph(d.add_file(name, {std::istreambuf_iterator<char>(in), {}}), d);
    REQUIRE(graph);
    passes::PipelineOptions options;
    options.target = "cpu";
    const passes::PipelineResult result = passes::run_pipeline(*graph, options, d);
    REQUIRE(result.ok);
    const auto& p = std::get<ir::Program>(result.unit);
    const Precedence order(p);
    constexpr int kLaunches = 3;
    using Pair = std::tuple<Instance, Instance, Precedence::Why, ir::EventId>;
    for (const Packets packets : {Packets::None, Packets::Sure, Packets::All}) {
      std::multiset<Pair> back, forth;
      for (uint32_t t = 0; t < p.tasks.size(); ++t)
        for (int32_t rank = 0; rank < p.world; ++rank)
          for (int32_t launch = 0; launch < kLaunches; ++launch) {
            const Instance i{t, rank, launch};
            for (const auto& e : order.before(i, packets)) back.emplace(e.other, i, e.why, e.event);
            for (const auto& e : order.after(i, kLaunches, packets))
              forth.emplace(i, e.other, e.why, e.event);
          }
      CHECK(back.size() > p.tasks.size());
      CHECK((back == forth));
    }
  }
}

}  // namespace
}  // namespace maco::test
