// Witnesses of the verifier's, replayed task by task on the CPU: each shows what it says.
#include "tools/replay.h"
#include "compiler/api/compile.h"

#include "compiler/verify/verify.h"
#include "runtime/cpu/session.h"
#include "runtime/cpu/stand_in.h"
#include "tests/unit/damaged_programs.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using tools::ReplayResult;
using verify::Witness;
using Claim = Witness::Claim;

std::vector<Witness> witnesses(const ir::Program& p, size_t max) {
  ir::Diagnostics diagnostics;
  std::vector<Witness> list;
  verify::verify(p, diagnostics, {.max_reports = max, .witnesses = &list});
  for (Witness& w : list) complete(p, w);
  return list;
}

/// By stand-ins for device functions.
ReplayResult stand_in(const ir::Program& p, const Witness& w) {
  std::vector<bool> skip;
  const verify::Precedence order(p);
  if (w.small_dims)
    for (uint32_t t = 0; t < p.tasks.size(); ++t) skip.push_back(order.may_skip(t));
  const auto run = runtime::make_stand_in(p, skip);
  return tools::replay({p, *run, {}}, w);
}

std::string story(const std::string& text) {
  const ir::Program p = parse_text(text);
  const std::vector<Witness> all = witnesses(p, 1);
  REQUIRE(!all.empty());
  const ReplayResult r = stand_in(p, all[0]);
  CHECK(r.error == "");
  CHECK(r.confirmed);
  return r.story;
}

TEST_CASE("a dropped wait is shown to change what is read") {
  CHECK(story(with(kSum, "wait done; signal arrived", "signal arrived")) ==
        "race: matmul 'down' tile 0 (rank 0) and exchange 'y' (put) tile 0 (rank 0)\n"
        "  after the schedule of 0 tasks each can go first:\n"
        "    matmul 'down' tile 0 (rank 0) runs\n"
        "    exchange 'y' (put) tile 0 (rank 0) runs\n"
        "  writes p[0:4, 0:4] and reads p[0:4, 0:8]: 64 bytes in common\n"
        "  exchange 'y' (put) tile 0 (rank 0) reads other bytes, 64 of them, if matmul 'down' "
        "tile 0 (rank 0) has gone first\n"
        "  at the end these differ: 'y' on rank 1\n");
}

TEST_CASE("a slot used again too early is shown over two launches") {
  const std::string told = story(with(kSum, "rotation=2 ", ""));
  CHECK_THAT(told, Contains("reads slots[0:2, 0:32] and writes slots[1:2, 0:32]: 128 bytes"));
  CHECK_THAT(told, Contains("if exchange 'y' (put) tile 0 (rank 1, launch 1) has gone first"));
  CHECK_THAT(told, Contains("at the end these differ: 'y' on rank 0 after launch 0\n"));
}

TEST_CASE("a race that only small dims show is shown with them") {
  CHECK_THAT(story(skipped_packets()),
             Contains("if exchange 'y' (put) tile 0 (rank 1, launch 2) has gone first"));
}

TEST_CASE("two writes show in the bytes that are left") {
  CHECK_THAT(story(with(kSum, "write p[0:4, 4:8]", "write p[0:4, 3:8]")),
             Contains("when both have run, the order shows in 15 of these bytes"));
}

TEST_CASE("a deadlock is shown with who waits for what") {
  const std::string text = with(kSum, "t2 c1#0 comm sm=2 place=0", "t2 c1#0 comm sm=2 place=1");
  const std::string told =
      story(with(text, "t3 c2#0 comm sm=2 place=1", "t3 c2#0 comm sm=2 place=0"));
  CHECK_THAT(told, Contains("deadlock: after the schedule of 4 tasks nothing goes on\n"));
  CHECK_THAT(told, Contains("  exchange 'y' (combine) tile 0 (rank 0) waits for event 'arrived' "
                            "of exchange 'y' (put) tile 0 (rank 1)\n"));
  CHECK_THAT(told, !Contains("went on"));
}

TEST_CASE("a wrong order is shown") {
  const std::string text =
      with(with(kSum, "sm=0 place=1: read q[0:4, 0:8]; write y[0:4, 0:8]; wait summed",
                "sm=0 place=1 after(c0): read x[0:4, 0:8]; write y[0:4, 0:8]"),
           "; signal summed", "");
  CHECK(story(with(text, "  event summed local\n", "")) ==
        "order: matmul 'down' tile 1 (rank 0) has to end before silu 'out' tile 0 (rank 0) starts\n"
        "  after the schedule of 1 task, silu 'out' tile 0 (rank 0) runs\n"
        "  matmul 'down' tile 1 (rank 0) has not ended\n");
}

TEST_CASE("what isn't so is not confirmed") {
  const ir::Program sum = parse_text(kSum);
  struct Case {
    const char* what;
    Witness claim;
    const char* reason;
  };
  const Case cases[] = {
      {"the reader waits for the writer",
       {Claim::Race, {0, 0, 0}, {2, 0, 0}, {}, false, {{1, 0, 0}}},
       "exchange 'y' (put) tile 0 (rank 0) waits"},
      {"the second is of a later launch",
       {Claim::Race, {2, 0, 0}, {0, 0, 1}, {}, false, {{0, 0, 0}, {1, 0, 0}}},
       "matmul 'down' tile 0 (rank 0, launch 1) isn't next in its stream"},
      {"no byte in common",
       {Claim::Race, {0, 0, 0}, {1, 0, 0}, {}, false, {}},
       "touch no byte in common"},
      {"a schedule that can't be followed",
       {Claim::Race, {0, 0, 0}, {2, 0, 0}, {}, false, {{3, 1, 0}}},
       "step 1 of the schedule, exchange 'y' (combine) tile 0 (rank 1), isn't next"},
      {"a step that has to wait",
       {Claim::Race, {0, 0, 0}, {2, 0, 0}, {}, false, {{2, 1, 0}}},
       "step 1 of the schedule, exchange 'y' (put) tile 0 (rank 1), waits"},
      {"ordered, and so it is run",
       {Claim::Order, {0, 0, 0}, {2, 0, 0}, {}, false, {{0, 0, 0}, {1, 0, 0}}},
       "matmul 'down' tile 0 (rank 0) has ended before"},
      {"all goes on", {Claim::Deadlock, {}, {}, {}, false, {}}, "but all went on to the end"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const ReplayResult r = stand_in(sum, c.claim);
    CHECK(r.error == "");
    CHECK_FALSE(r.confirmed);
    CHECK_THAT(r.story, Contains(c.reason));
  }
  // Something is stuck for ever, but more than the witness says goes on.
  const std::string text = with(kSum, "t2 c1#0 comm sm=2 place=0", "t2 c1#0 comm sm=2 place=1");
  const ir::Program stuck =
      parse_text(with(text, "t3 c2#0 comm sm=2 place=1", "t3 c2#0 comm sm=2 place=0"));
  const ReplayResult early = stand_in(stuck, {Claim::Deadlock, {}, {}, {}, false, {{0, 0, 0}}});
  CHECK_FALSE(early.confirmed);
  CHECK_THAT(early.story, Contains("but matmul 'down' tile 1 (rank 0) went on"));
  CHECK_THAT(stand_in(sum, {Claim::Unseen, {2, 0, 0}, {3, 1, 0}, {}, false, {}}).error,
             Contains("no run shows it"));
}

TEST_CASE("every witness of damaged Programs is confirmed by stand-ins") {
  std::map<Claim, int> seen;
  int shows = 0;
  for (const char* name :
       {"tp_mlp.maco", "allreduce.maco", "barrier.maco", "alltoall.maco", "reduce_scatter.maco",
        "broadcast.maco", "ring_shift.maco", "allgather.maco", "decode_layer.maco",
        "phases_roles.maco", "residual_norms.maco", "pipeline_4_stages.maco"}) {
    const Subject subject = example(name);
    for (const ir::Program& p : damaged(subject.program, 10))
      for (const Witness& w : witnesses(p, 2)) {
        if (w.claim == Claim::Unseen) continue;
        INFO(subject.name << "\n" << print(p, w));
        const ReplayResult r = stand_in(p, w);
        INFO(r.story);
        CHECK(r.error == "");
        CHECK(r.confirmed);
        ++seen[w.claim];
        if (r.story.find("reads other bytes") != std::string::npos ||
            r.story.find("the order shows") != std::string::npos)
          ++shows;
      }
  }
  CHECK(seen[Claim::Race] >= 50);
  CHECK(seen[Claim::Deadlock] >= 20);
  CHECK(shows >= 50);
}

bool reads_packets(const ir::Program& p, const Witness& w) {
  for (const uint32_t task : {w.first.task, w.second.task})
    for (const ir::Access& a : p.tasks[task].accesses)
      if (!a.writes() && p[a.region.buffer].packets) return true;
  return false;
}

std::string exchange(const std::string& world, const std::string& algorithm) {
  return "graph g(world = " + world +
         ") {\n input x : f32[96, 1024]\n a = exp(x)\n s = allreduce(a, algorithm = " + algorithm +
         ")\n output y = exp(s)\n}";
}

// The same by the kernels that macoc would have written, all in one shared object.
TEST_CASE("every witness of damaged Programs is confirmed by their kernels") {
  struct Case {
    const Subject* subject;
    ir::Program program;
    Witness witness;
  };
  const std::vector<Subject> subjects = {
      example("allreduce.maco"), example("barrier.maco"), example("alltoall.maco"),
      // Too large for packets: with peer events.
      compiled("oneshot", exchange("2", "oneshot")), compiled("twoshot", exchange("3", "twoshot"))};
  std::vector<Case> cases;
  std::vector<std::string> kernels;
  std::map<Claim, int> seen;
  for (const Subject& subject : subjects)
    for (const ir::Program& p : damaged(subject.program, 12))
      for (const Witness& w : witnesses(p, 1)) {
        // Device functions poll the packets that they read, whatever the Program's waits say.
        if (w.claim == Claim::Unseen || (w.claim == Claim::Race && reads_packets(p, w))) continue;
        if (seen[w.claim] == 14) continue;
        ir::Diagnostics d;
        passes::PipelineOptions options;
        options.target = "cpu";
        kernels.push_back(api::emit_kernel(subject.graph, p, options, d));
        INFO(d.render());
        REQUIRE(!kernels.back().empty());
        cases.push_back({&subject, p, w});
        ++seen[w.claim];
      }
  CHECK(cases.size() >= 20);
  CHECK(seen[Claim::Race] >= 10);
  CHECK(seen[Claim::Deadlock] >= 4);
  runtime::Status status;
  const auto library = runtime::compile_cpu_kernels(kernels, {}, status);
  INFO(status.message);
  REQUIRE(library);
  int shows = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    runtime::SessionOptions options;
    options.first_epoch = 0xfffffffe;  // counters wrap on the way
    const auto session = runtime::make_cpu_session(library, i, kernels[i], options, status);
    REQUIRE(session);
    const auto write = [&](int rank, int launch) {
      for (size_t t = 0; t < session->manifest().tensors.size(); ++t) {
        const auto& tensor = session->manifest().tensors[t];
        std::vector<char> bytes(
            static_cast<size_t>(tensor.max_elements * ir::size_of(tensor.dtype)));
        // Small numbers of every dtype, all different between ranks and launches.
        for (size_t b = 0; b < bytes.size(); ++b)
          bytes[b] = static_cast<char>(tensor.kind == "output" || b % 2 == 0
                                           ? b * 7 + static_cast<size_t>(rank + 3 * launch)
                                           : 0x3c);
        REQUIRE(session->write(rank, t, bytes.data(), bytes.size()));
      }
    };
    INFO(c.subject->name << "\n" << print(c.program, c.witness));
    const ReplayResult r = tools::replay({c.program, *session, {}, write}, c.witness);
    INFO(r.story);
    CHECK(r.error == "");
    CHECK(r.confirmed);
    if (r.story.find("reads other bytes") != std::string::npos ||
        r.story.find("the order shows") != std::string::npos)
      ++shows;
  }
  CHECK(shows >= 10);
}

}  // namespace
}  // namespace maco::test
