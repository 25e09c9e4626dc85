// Users' algorithms: what is right is followed, what is wrong refused, with a run that shows it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "compiler/frontend/frontend.h"
#include "compiler/ops/collectives/chunk_witness.h"

using namespace maco;
using ops::ChunkFault;

namespace {

struct Checked {
  ir::Graph graph;
  std::optional<ops::ChunkFlow> flow;
  std::optional<ChunkFault> fault;
  std::string messages;
  const ir::Op& op() const { return graph.ops[0]; }
  const ir::UserAlgorithm& algorithm() const { return graph.algorithms[0]; }
  bool says(const std::string& text) const { return messages.find(text) != std::string::npos; }
};

Checked check(ir::Graph graph) {
  Checked c;
  c.graph = std::move(graph);
  ir::Diagnostics d;
  c.flow = ops::chunk_flow(c.graph, c.op(), c.algorithm(), d, &c.fault);
  c.messages = d.render(false);
  REQUIRE(c.flow.has_value() == !d.has_errors());
  return c;
}
Checked check(const std::string& head, const std::string& body, int world, const std::string& use) {
  ir::Diagnostics d;
  auto graph = frontend::parse_graph(
      d.add_file("g.maco",
                 fmt::format("collective a({}) {{\n{}}}\ngraph g(world = {}) {{\n"
                             "  input x : f32[48]\n  output y = {}(x, {}algorithm = a)\n}}\n",
                             head, body, world, use, use == "broadcast" ? "root = 0, " : "")),
      d);
  INFO(d.render(false));
  REQUIRE(graph);
  return check(std::move(*graph));
}

// The witness survives its text, and a run shows what it says.
void shows(const Checked& c, ChunkFault::Claim claim) {
  INFO(c.messages);
  REQUIRE(c.fault);
  CHECK(c.fault->claim == claim);
  const std::string text = ops::print(c.graph, c.op(), c.algorithm(), *c.fault);
  INFO(text);
  REQUIRE(ops::is_chunk_witness(text));
  ir::Diagnostics d;
  const auto witness = ops::parse_chunk_witness(d.add_file("w", text), d);
  REQUIRE(witness);
  CHECK(witness->op == c.op().name);
  CHECK(witness->fault.about == c.fault->about);
  CHECK(witness->fault.run == c.fault->run);
  const ops::ChunkReplay replayed = ops::replay(c.graph, *witness, d);
  INFO(replayed.story << replayed.error);
  CHECK(replayed.confirmed);
}

constexpr const char* kTwoBlocks = R"(
  scratch[0] @ 1 - rank = put(input[1 - rank], block = 0)
  signal(to = 1 - rank, block = 0)
  wait(from = 1 - rank, block = 0)
  release(semaphore = 0, block = 0)
  acquire(semaphore = 0, block = 1)
  output[rank] = reduce(input[rank], scratch[0], block = 1)
  output[rank] @ 1 - rank = put(output[rank], block = 1)
  signal(to = 1 - rank, tag = 1, block = 1)
  wait(from = 1 - rank, tag = 1, block = 1)
)";
constexpr const char* kPackets = R"(
  scratch[rank] @ (rank + 1) % world = put(input[0:1], packets = true, block = 0)
  scratch[rank] @ (rank + 2) % world = put(input[0], packets = true, block = 1)
  output[0] = reduce(input[0], scratch[(rank + 1) % world], scratch[(rank + 2) % world], block = 2)
)";
constexpr const char* kBarrier = R"(
  output[rank] @ 1 - rank = put(input[0], block = 0)
  output[rank] = copy(input[0], block = 1)
  signal(to = 1 - rank, block = 0)
  wait(from = 1 - rank, block = 0)
  barrier(blocks = [0, 1])
  scratch[0] = copy(output[1 - rank], block = 1)
  barrier(blocks = [0, 1], block = 0)
  barrier(blocks = [0, 1], block = 1)
  output[1 - rank] = copy(scratch[0], block = 0)
)";

struct Base {
  const char *head, *body;
  int world;
  const char* use;
};
const Base kBases[] = {
    {"of = allreduce, chunks = 2, scratch = 1", kTwoBlocks, 2, "allreduce"},
    {"of = allreduce, scratch = 3", kPackets, 3, "allreduce"},
    {"of = allgather, scratch = 1", kBarrier, 2, "allgather"},
};

}  // namespace

TEST_CASE("chunks: what an author ordered rightly is followed") {
  for (const Base& b : kBases) {
    const Checked c = check(b.head, b.body, b.world, b.use);
    INFO(c.messages);
    CHECK(c.flow);
    for (uint64_t seed = 0; seed < 50; ++seed)
      CHECK_FALSE(ops::run_at_random(c.graph, c.op(), c.algorithm(), seed).confirmed);
  }
}

TEST_CASE("chunks: a release that comes behind an acquire isn't the one that it waits for") {
  const char* body = R"(
  scratch[0] = copy(input[0], block = 1)
  release(semaphore = 0, block = 1)
  acquire(semaphore = 1, block = 2)
  scratch[1] = copy(input[1], block = 2)
  release(semaphore = 0, block = 2)
  acquire(semaphore = 0, block = 0)
  output[0], output[0] @ 1 - rank = copy(scratch[0], block = 0, if = rank == 0)
  release(semaphore = 1, block = 0)
  acquire(semaphore = 0, block = 0)
  output[1], output[1] @ 1 - rank = copy(scratch[1], block = 0, if = rank == 0)
  signal(to = 1 - rank, block = 0)
  wait(from = 1 - rank, block = 0)
)";
  std::string put = body;
  for (size_t at; (at = put.find("= copy(scratch")) != std::string::npos;)
    put.replace(at, 14, "= put(scratch");
  const Checked right = check("of = broadcast, chunks = 2, scratch = 2", put, 2, "broadcast");
  INFO(right.messages);
  CHECK(right.flow);
  for (uint64_t seed = 0; seed < 50; ++seed)
    CHECK_FALSE(ops::run_at_random(right.graph, right.op(), right.algorithm(), seed).confirmed);
  // Without the order between the two, either may be the first.
  const size_t at = put.find("  acquire(semaphore = 1, block = 2)\n");
  put.erase(at, 35);
  put.erase(put.find("  release(semaphore = 1, block = 0)\n"), 35);
  const Checked wrong = check("of = broadcast, chunks = 2, scratch = 2", put, 2, "broadcast");
  CHECK(wrong.says("nothing orders them"));
}

TEST_CASE("chunks: what no output needs is left out") {
  const Checked c = check("of = alltoall, chunks = world, scratch = world * world", R"(
  scratch[rank * world:rank * world + world] @ all = put(input[0:world])
  repeat i in 0..world {
    output[{i}] = copy(scratch[{i} * world + rank])
  }
)",
                          3, "alltoall");
  INFO(c.messages);
  REQUIRE(c.flow);
  // Each rank has steps for two chunks to others, and for three outputs.
  CHECK(c.flow->steps.size() == 3 * 5);
}

TEST_CASE("chunks: every value has one step on a rank, behind what it needs") {
  const Checked c = check("of = allreduce, chunks = world, scratch = world", R"(
  repeat i in 0..world {
    scratch[rank] @ (rank + {i}) % world = put(input[(rank + {i}) % world])
  }
  output[rank] = reduce(scratch[0], scratch[1], scratch[2], scratch[3])
  repeat i in 1..world {
    output[rank] @ (rank + {i}) % world = put(output[rank])
  }
)",
                          4, "allreduce");
  INFO(c.messages);
  REQUIRE(c.flow);
  // On each rank: three chunks sent, one summed and passed on, three results taken.
  CHECK(c.flow->steps.size() == 4 * 7);
  std::set<std::pair<int, uint32_t>> seen;
  for (const ops::ChunkStep& s : c.flow->steps) {
    CHECK(seen.insert({s.rank, s.value}).second);
    for (uint32_t v : s.from) {
      const bool own = c.flow->is_input(v) && c.flow->rank_of_input(v) == s.rank;
      const bool came = std::any_of(
          c.flow->steps.begin(), c.flow->steps.end(), [&](const ops::ChunkStep& sender) {
            return &sender < &s && sender.value == v &&
                   std::count(sender.to.begin(), sender.to.end(), s.rank) == 1;
          });
      CHECK(own != came);
    }
    // Sums go in rank order.
    CHECK(std::is_sorted(s.from.begin(), s.from.end(), [&](uint32_t a, uint32_t b) {
      return c.flow->values[a].ranks < c.flow->values[b].ranks;
    }));
  }
}

TEST_CASE("chunks: faults, each with a run that shows it") {
  using enum ChunkFault::Claim;
  const auto reduce = [](const char* body) {
    return check("of = allreduce, scratch = 1", body, 2, "allreduce");
  };
  Checked c = reduce(R"(
  wait(from = 1 - rank)
  scratch[0] @ 1 - rank = put(input[0])
  signal(to = 1 - rank)
  output[0] = reduce(input[0], scratch[0])
)");
  CHECK(c.says("comes to a deadlock: 2 thread blocks wait without end"));
  shows(c, Deadlock);

  c = reduce(R"(
  scratch[0] @ 1 - rank = put(input[0], block = 0)
  output[0] = reduce(input[0], scratch[0], block = 1)
)");
  CHECK(c.says("nothing orders them"));
  shows(c, Race);

  c = reduce(R"(
  scratch[0] @ 1 - rank = put(input[0])
  signal(to = 1 - rank, relaxed = true)
  wait(from = 1 - rank)
  output[0] = reduce(input[0], scratch[0])
)");
  CHECK(c.says("it comes first, but nothing makes it visible"));
  shows(c, Unseen);

  c = reduce("  output[0] = reduce(input[0], scratch[0])\n");
  CHECK(c.says("rank 0 reads scratch[0] of rank 0, which nothing has written"));
  shows(c, Empty);

  c = reduce("  output[0] = copy(input[0])\n");
  CHECK(
      c.says("leaves chunk 0 of rank 0 in output[0] of rank 0, where 'allreduce' needs the "
             "reduction of chunk 0 over ranks 0, 1"));
  shows(c, Result);

  c = reduce("  scratch[0] @ 0 = put(input[0])\n");
  CHECK(c.says("in the same statement"));
  shows(c, Race);

  c = check("of = allgather", R"(
  output[rank] = copy(input[0], block = 0)
  output[rank] @ 1 - rank = put(input[0], block = 0)
)",
            2, "allgather");
  CHECK(c.says("no wait of rank 0 tells it of that"));
  shows(c, Late);
}

TEST_CASE("chunks: what needs no run to be seen") {
  const auto refused = [](const std::string& head, const char* body, const char* use,
                          const std::string& why, int world = 2) {
    const Checked c = check(head, body, world, use);
    INFO(c.messages);
    CHECK_FALSE(c.flow);
    CHECK(c.says(why));
  };
  refused("of = allreduce, scratch = 1", "  scratch[1] = copy(input[0])\n", "allreduce",
          "rank 0 names scratch[1], but scratch has 1 chunk, from 0 on");
  refused("of = allreduce, chunks = 4", "  output[0:2] = copy(input[1:4])\n", "allreduce",
          "'copy' has 3 and 2 chunks on rank 0");
  refused("of = allreduce", "  output[0] @ world = put(input[0])\n", "allreduce",
          "the rank behind '@' is 2 on rank 0, but must be 0 to 1");
  refused("of = allgather, world = 4", "", "allgather", "is for 4 ranks, but the graph has 2");
  refused("of = allgather", "", "allreduce", "is one of 'allgather', which 'allreduce' isn't");
  refused("of = alltoall, chunks = 3", "", "alltoall", "3 chunks are no multiple of that");
  refused("of = allreduce, scratch = 1", R"(
  scratch[0] @ 1 - rank = put(input[0])
  output[0] = reduce(input[0], scratch[0], scratch[0])
)",
          "allreduce", "counts chunk 0 of rank 1 twice");
  refused("of = allreduce, chunks = 2, scratch = 1", R"(
  scratch[0] @ 1 - rank = put(input[1])
  output[0] = reduce(input[0], scratch[0])
)",
          "allreduce", "rank 0 reduces chunk 0 of rank 0 with chunk 1 of rank 1");
  refused("of = allgather, scratch = 1", R"(
  scratch[0] @ 1 - rank = put(input[0])
  output[0] = reduce(input[0], scratch[0])
)",
          "allgather", "'allgather' reduces nothing");
  refused("of = allreduce", "  signal(to = 1 - rank)\n", "allreduce", "the next launch would find");
  refused("of = allreduce", "  release(semaphore = 0)\n", "allreduce",
          "the next launch would find");
  refused("of = allreduce", "  signal(to = rank)\n", "allreduce", "would signal itself");
  refused("of = allreduce", R"(
  signal(to = 1 - rank, block = 0)
  signal(to = 1 - rank, block = 1)
  wait(from = 1 - rank, block = 0)
  wait(from = 1 - rank, block = 0)
)",
          "allreduce", "which of them comes first would decide");
  refused("of = allreduce", "  barrier(blocks = [0, 1], block = 0)\n", "allreduce",
          "1 of 2 blocks come to a barrier");
  refused("of = allreduce, scratch = 1", R"(
  scratch[0] @ 1 - rank = put(input[0], packets = true, block = 0)
  scratch[0] @ 1 - rank = put(input[0], packets = true, block = 0)
)",
          "allreduce", "gets packets twice");
  // (0 + 1) + (2 + 3), but (1 + 2) + (3 + 0).
  refused("of = allreduce, scratch = 1", R"(
  scratch[0] = reduce(input[0], input[0] @ (rank + 1) % world)
  output[0] = reduce(scratch[0], scratch[0] @ (rank + 2) % world)
)",
          "allreduce", "they would not hold the same bits", 4);
}

TEST_CASE("chunks: mutants of what an author ordered are refused, or right in every order") {
  int refused = 0, right = 0, shown = 0;
  for (const Base& b : kBases) {
    const ir::Graph base = check(b.head, b.body, b.world, b.use).graph;
    const size_t count = base.algorithms[0].ops.size();
    const auto judge = [&](const ir::Graph& mutant, const std::string& what) {
      const Checked c = check(mutant);
      INFO(what << " of\n" << frontend::print_dsl(base) << c.messages);
      if (!c.flow) {
        ++refused;
        if (!c.fault) return;
        ir::Diagnostics d;
        const ops::ChunkReplay replayed = ops::replay(c.graph, {c.op().name, *c.fault}, d);
        INFO(replayed.story << replayed.error);
        CHECK((replayed.confirmed ||
               (c.fault->claim == ChunkFault::Claim::Unseen && !replayed.error.empty())));
        shown += replayed.confirmed;
        return;
      }
      ++right;
      for (uint64_t seed = 0; seed < 200; ++seed) {
        const ops::ChunkReplay run = ops::run_at_random(c.graph, c.op(), c.algorithm(), seed);
        INFO("seed " << seed << "\n" << run.story << run.error);
        REQUIRE(run.error.empty());
        REQUIRE_FALSE(run.confirmed);
      }
    };
    for (size_t i = 0; i < count; ++i) {
      const auto mutant = [&](auto&& change, const char* what) {
        ir::Graph g = base;
        auto& ops = g.algorithms[0].ops;
        change(ops, ops[i]);
        if (g != base) judge(g, fmt::format("{} statement {}", what, i + 1));
      };
      mutant([&](auto& ops, auto&) { ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i)); },
             "without");
      mutant([&](auto& ops,
                 auto& op) { ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(i), op); },
             "twice");
      mutant([&](auto& ops, auto& op) { std::swap(op, ops[(i + 1) % count]); }, "later");
      mutant([](auto&, auto& op) { op.relaxed = op.kind == "signal" || op.kind == "wait"; },
             "relaxed");
      mutant([](auto&, auto& op) { op.packets = !op.packets && !op.from.empty(); },
             "packets changed of");
      mutant([](auto&, auto& op) { op.block = ir::Expr(op.block == ir::Expr(1) ? 0 : 1); },
             "in the other block:");
      mutant(
          [](auto&, auto& op) {
            op.condition = ir::Expr::binary(ir::Expr::Kind::Eq, ir::Expr::var("rank"), 0);
          },
          "on rank 0 only:");
    }
  }
  INFO(refused << " refused, " << shown << " of them shown, " << right << " right");
  CHECK(refused > 60);
  CHECK(shown > 30);
  CHECK(right > 5);
}
