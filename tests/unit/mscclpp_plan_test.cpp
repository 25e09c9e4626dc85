// MSCCL++ execution plans, read and written as collectives.
#include "compiler/frontend/mscclpp_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "compiler/api/compile.h"
#include "compiler/frontend/rank_formula.h"
#include "tests/catch.h"
#include "tests/mscclpp_plan.h"

using namespace maco;
using test::Contains;
using test::moves;
using test::own;
using test::peers;
using test::Plan;
using test::syncs;

namespace {

Plan of(const std::string& ops) {
  Plan plan;
  plan.ops = {{ops}};
  return plan;
}

struct Result {
  std::optional<std::string> text;
  std::string errors;
  int count = 0;
};
Result import_text(const std::string& text, const frontend::PlanOptions& options = {}) {
  ir::Diagnostics d;
  d.add_file("other", "");
  Result r;
  r.text = frontend::import_plan(d.add_file("p.json", text), options, d);
  r.errors = d.render();
  r.count = d.errors();
  CHECK(r.text.has_value() == !d.has_errors());
  return r;
}

/// Parts of messages about collectives that do only a part of their work.
constexpr const char* kPieces[] = {
    " leaves ",       "which nothing ",      " counts chunk ",  "comes to a deadlock",
    " reduces chunk", "nothing orders them", "and so does rank"};

/// The messages of a compilation of the imported text.
std::string compiled(const std::string& text) {
  ir::Diagnostics d;
  const auto graph = api::read_graph("imported.maco", text, d);
  INFO(text << "\n" << d.render());
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  api::compile(*graph, options, d);
  return d.render();
}

/// What is imported is right as text of the language, and its thread blocks meet: pieces of plans
/// lack but the rest of a collective.
void check_language(const std::string& text) {
  const std::string said = compiled(text);
  INFO(text << "\n" << said);
  for (size_t at = said.find("error: "); at != said.npos; at = said.find("error: ", at + 1)) {
    const std::string error = said.substr(at, said.find('\n', at) - at);
    const bool of_a_piece =
        std::any_of(std::begin(kPieces), std::end(kPieces),
                    [&](const char* piece) { return error.find(piece) != error.npos; });
    INFO(error);
    CHECK(of_a_piece);
  }
}

std::string imported(const Plan& plan, const frontend::PlanOptions& options = {}) {
  const Result r = import_text(plan.text(), options);
  INFO(plan.text() << "\n" << r.errors);
  REQUIRE(r.text);
  check_language(*r.text);
  return *r.text;
}
/// The statements of the collective, one a line, without indentation.
std::string statements(const Plan& plan) {
  const std::string text = imported(plan);
  std::string result;
  const size_t end = text.find("\n}\n");
  size_t at = text.find('\n') + 1;
  while (at <= end) {
    const size_t next = text.find('\n', at);
    result += text.substr(at + 2, next - at - 1);
    at = next + 1;
  }
  return result;
}
/// The only error.
std::string error_of(const Plan& plan) {
  const Result r = import_text(plan.text());
  INFO(r.errors);
  CHECK(r.count == 1);
  return r.errors;
}

const std::string kPack = moves("cpkt", own("i", 0), own("s", 3));  // scratch[3] holds packets

}  // namespace

TEST_CASE("mscclpp: a plan becomes a collective and a graph that uses it") {
  Plan plan = of(R"({"name":"nop"},)" + syncs("rlxsignal", "0") + "," + syncs("rlxwait", "0") +
                 "," + moves("put", own("i", 1), peers(2, 3)) + R"(,{"name":"nop"},)" +
                 syncs("signal", "0") + "," + syncs("wait", "0") + "," +
                 moves("re", own("i", 0) + "," + own("s", 3), own("o", 0)));
  CHECK(imported(plan) ==
        "collective p(of = allreduce, world = 2, chunks = 4, scratch = 4) {\n"
        "  signal(to = (rank + 1) % world, tag = 0, relaxed = true)\n"
        "  wait(from = (rank + 1) % world, tag = 0, relaxed = true)\n"
        "  scratch[3] @ (rank + 1) % world = put(input[1])\n"
        "  signal(to = (rank + 1) % world, tag = 0)\n"
        "  wait(from = (rank + 1) % world, tag = 0)\n"
        "  output[0] = reduce(input[0], scratch[3])\n"
        "}\n"
        "graph p(world = 2) {\n"
        "  input x : bf16[65536]\n"
        "  output y = allreduce(x, reduce = sum, algorithm = p)\n"
        "}\n");
}

TEST_CASE("mscclpp: operations that move chunks") {
  const auto [op, expected] = GENERATE(table<std::string, std::string>({
      {moves("copy", own("i", 0, 2), own("s", 1, 2), R"("x":0)"),
       "scratch[1:3] = copy(input[0:2])\n"},
      {moves("put", own("o", 0, 2), peers(1, 2, 2)),
       "output[2:4] @ (rank + 1) % world = put(output[0:2])\n"},
      // One source: one statement. Several: one each.
      {moves("put", own("i", 0) + "," + own("i", 0), peers(0, 1) + "," + peers(1, 2)),
       "input[1] @ (rank + 1) % world, output[2] @ (rank + 1) % world = put(input[0])\n"},
      {moves("put", own("i", 0) + "," + own("i", 1), peers(1, 0) + "," + peers(1, 1)),
       "output[0] @ (rank + 1) % world = put(input[0])\n"
       "output[1] @ (rank + 1) % world = put(input[1])\n"},
      {moves("put", own("i", 0), peers(1, 0), R"("channel_ids":[0],"channel_type":"port")"),
       "output[0] @ (rank + 1) % world = put(input[0])\n"},
      {moves("get", peers(0, 1), own("s", 0), R"("channel_ids":[0],"channel_type":"memory")"),
       "scratch[0] = get(input[1] @ (rank + 1) % world)\n"},
      {moves("re", own("i", 0) + "," + own("s", 0) + "," + own("s", 1), own("i", 0),
             R"("reduce_op":"sum")"),
       "input[0] = reduce(input[0], scratch[0], scratch[1])\n"},
      {moves("res", own("i", 0) + "," + own("s", 0), own("i", 1) + "," + peers(1, 1)),
       "input[1], output[1] @ (rank + 1) % world = reduce(input[0], scratch[0])\n"},
      {moves("rre", own("i", 0) + "," + peers(0, 0), own("o", 0)),
       "output[0] = reduce(input[0] @ all)\n"},
      {moves("rres", own("i", 0) + "," + peers(0, 0), own("o", 0) + "," + peers(1, 0)),
       "output[0] @ all = reduce(input[0] @ all)\n"},
  }));
  CHECK(statements(of(op)) == expected);
}

TEST_CASE("mscclpp: operations on packets") {
  const std::string packed = "scratch[3] = copy(input[0], packets = true)\n";
  const auto [op, expected] = GENERATE(table<std::string, std::string>({
      {moves("upkt", own("s", 3), own("o", 0)), "output[0] = copy(scratch[3])\n"},
      {moves("ppkt", own("i", 0), peers(2, 0)),
       "scratch[0] @ (rank + 1) % world = put(input[0], packets = true)\n"},
      {moves("rppkt", own("s", 3), peers(2, 0) + "," + peers(2, 1)),
       "scratch[0] @ (rank + 1) % world, scratch[1] @ (rank + 1) % world = put(scratch[3], packets "
       "= true)\n"},
      {moves("repkt", own("i", 0) + "," + own("s", 3), own("o", 0)),
       "output[0] = reduce(input[0], scratch[3])\n"},
      {moves("respkt", own("i", 0) + "," + own("s", 3), own("i", 0) + "," + peers(2, 1)),
       "input[0], scratch[1] @ (rank + 1) % world = reduce(input[0], scratch[3], packets = "
       "true)\n"},
      {moves("recpkt", own("i", 0) + "," + own("s", 3), own("i", 0) + "," + own("s", 1)),
       "input[0], scratch[1] = reduce(input[0], scratch[3], packets = true)\n"},
      {moves("recspkt", own("i", 0) + "," + own("s", 3),
             own("i", 0) + "," + own("s", 1) + "," + peers(2, 2)),
       "input[0], scratch[1], scratch[2] @ (rank + 1) % world = reduce(input[0], scratch[3], "
       "packets = true)\n"},
      // The first destination isn't packets, wherever it is.
      {moves("recspkt", own("i", 0) + "," + own("s", 3),
             own("s", 0) + "," + own("s", 1) + "," + peers(2, 2)),
       "scratch[0] = reduce(input[0], scratch[3])\n"
       "scratch[1] = copy(scratch[0], packets = true)\n"
       "scratch[2] @ (rank + 1) % world = put(scratch[0], packets = true)\n"},
  }));
  CHECK(statements(of(kPack + "," + op)) == packed + expected);
}

TEST_CASE("mscclpp: packets are read where packets are written, and nowhere else") {
  const auto errors = [](const std::string& ops) { return import_text(of(ops).text()).errors; };
  CHECK_THAT(errors(kPack + "," + moves("upkt", own("s", 2, 2), own("o", 0, 2))),
             Contains("p.json:3:") &&
                 Contains("error: this waits for packets in scratch[2:4] of rank 0, but none are "
                          "written to 1 of these chunks"));
  CHECK_THAT(errors(kPack + "," + moves("copy", own("s", 3), own("o", 0))),
             Contains("error: this reads scratch[3:4] of rank 0 as it is, but packets are written "
                      "there"));
  CHECK_THAT(errors(moves("cpkt", own("i", 0), own("o", 0))),
             Contains("packets of 'cpkt' must be in scratch memory, not in the output"));
}

TEST_CASE("mscclpp: the n-th channel to a rank is connected to its n-th back") {
  Plan plan;
  plan.world = 3;
  plan.memory = 2;
  plan.ops = {{syncs("signal", "2,3") + "," + syncs("wait", "0,1") + "," + syncs("signal", "0,1") +
               "," + syncs("wait", "2,3") + "," + syncs("signal", "0,1", "port") + "," +
               syncs("wait", "0,1", "port")}};
  // Port channels are counted behind the memory channels.
  CHECK(statements(plan) ==
        "signal(to = others, tag = 1)\n"
        "wait(from = others, tag = 0)\n"
        "signal(to = others, tag = 0)\n"
        "wait(from = others, tag = 1)\n"
        "signal(to = others, tag = 2)\n"
        "wait(from = others, tag = 2)\n");
  // Behind those of either rank: rank 0 has three, rank 1 has one.
  std::string text = of(syncs("signal", "0", "port") + "," + syncs("wait", "0", "port")).text();
  const std::string one = R"("connected_to":[1]})";
  text.replace(text.find(one), one.size(), R"("connected_to":[1,1,1]})");
  CHECK_THAT(import_text(text).text.value_or(""),
             Contains("signal(to = (rank + 1) % world, tag = 3)"));
}

TEST_CASE("mscclpp: a put with a signal is two statements, and a flush is none") {
  for (const char* name : {"pws", "pwsf"}) {
    const std::string op =
        moves(name, own("i", 0), peers(1, 0), R"("channel_ids":[0],"channel_type":"port")");
    CHECK(
        statements(of(op + "," + syncs("flush", "0", "port") + "," + syncs("wait", "0", "port"))) ==
        "output[0] @ (rank + 1) % world = put(input[0])\n"
        "signal(to = (rank + 1) % world, tag = 1)\n"
        "wait(from = (rank + 1) % world, tag = 1)\n");
    CHECK_THAT(import_text(of(moves(name, own("i", 0), peers(1, 0))).text()).errors,
               Contains(fmt::format("'{}' must go through a port channel", name)));
  }
}

TEST_CASE("mscclpp: signals and waits come in pairs") {
  const Result r = import_text(of(syncs("signal", "0")).text());
  CHECK_THAT(r.errors,
             Contains("rank 0 signals rank 1 1 times on their channel 0, but there are 0 waits"));
}

TEST_CASE("mscclpp: what ranks don't have in common has a condition") {
  const auto copies = [](int from, int to) {
    return moves("copy", own("i", from), own("o", to), R"("x":0)");
  };
  Plan plan;
  plan.world = 4;
  plan.ops = {{copies(0, 0) + "," + copies(1, 1)},
              {copies(0, 1)},
              {copies(0, 2) + "," + copies(3, 1)},
              {copies(0, 3) + "," + copies(0, 1)}};
  CHECK(statements(plan) ==
        "output[rank] = copy(input[0])\n"
        "output[1] = copy(input[(rank + 1) % world], if = rank != 1)\n");
}

TEST_CASE("mscclpp: thread blocks, barriers and semaphores") {
  const auto barrier = [](int blocks) {
    return fmt::format(R"({{"name":"barrier","barrier_id":0,"num_threadblocks":{}}})", blocks);
  };
  Plan plan;
  plan.semaphores = {R"({"init_value":0},{"init_value":2})"};
  plan.ops = {{barrier(2) + R"(,{"name":"sem_release","semaphore_ids":[1]})", "",
               R"({"name":"sem_acquire","semaphore_ids":[1,0]},)" + barrier(2)}};
  CHECK_THAT(imported(plan), Contains("scratch = 4, semaphores = [0, 2])"));
  CHECK(statements(plan) ==
        "# thread block 0\n"
        "barrier(blocks = [0, 2], block = 0)\n"
        "release(semaphore = 1)\n"
        "# thread block 2\n"
        "acquire(semaphore = 1, block = 2)\n"
        "acquire(semaphore = 0, block = 2)\n"
        "barrier(blocks = [0, 2], block = 2)\n");
  // Two blocks that meet twice, and what either does between.
  for (const int first : {0, 1}) {
    Plan whole;
    whole.world = 2;
    whole.collective = "allgather";
    whole.output = 8;
    whole.ops = {};
    for (const int rank : {0, 1}) {
      const std::string own_place = own("o", 4 * rank, 4);
      std::string blocks[2] = {
          barrier(2) + "," + moves("put", own("i", 0, 4), peers(1, 4 * rank, 4)) + "," + barrier(2),
          barrier(2) + "," + moves("copy", own("i", 0, 4), own_place, R"("x":0)") + "," +
              barrier(2) + "," + syncs("signal", "0") + "," + syncs("wait", "0")};
      whole.ops.push_back({blocks[first], blocks[1 - first]});
    }
    CHECK(compiled(imported(whole)) == "");
  }
  // Ranks that number theirs in other ways.
  plan.semaphores.push_back(R"({"init_value":2},{"init_value":0})");
  CHECK_THAT(imported(plan), Contains("semaphores = [0, 2])"));
  CHECK_THAT(statements(plan), Contains("release(semaphore = (rank + 1) % world)\n"));

  plan.ops = {{barrier(3), barrier(3)}};
  CHECK_THAT(import_text(plan.text()).errors,
             Contains("barrier 0 of rank 0 is of 3 thread blocks, but 2 come to it"));
  plan.ops = {{barrier(2) + "," + barrier(2), barrier(2)}};
  CHECK_THAT(import_text(plan.text()).errors,
             Contains("thread block 0 of rank 0 comes to barrier 0 2 times and thread block 1 1 "
                      "times"));
  plan.ops = {{barrier(2), barrier(3)}};
  CHECK_THAT(import_text(plan.text()).errors,
             Contains("barrier 0 is of 3 thread blocks here and of 2 there") &&
                 Contains("note: the other is here"));
  plan.ops = {{barrier(1)}};
  CHECK(statements(plan).empty());
}

TEST_CASE("mscclpp: a pipeline's operations say its unit") {
  const auto pipeline = [](const std::string& ops, int chunks = 1) {
    return fmt::format(
        R"({{"name":"pipeline","iter_context":{{"unit_size":1024,"num_chunks":{}}},"ops":[{}]}})",
        chunks, ops);
  };
  const std::string copy = moves("copy", own("i", 0), own("s", 0), R"("x":0)");
  Plan plan = of(pipeline(copy + R"(,{"name":"nop"},)" + syncs("signal", "0")) + "," +
                 pipeline(syncs("wait", "0") + "," + copy));
  CHECK(statements(plan) ==
        "scratch[0] = copy(input[0], unit = 1024)\n"
        "signal(to = (rank + 1) % world, tag = 0, unit = 1024)\n"
        // Or it would be one loop.
        "barrier(blocks = [0], block = 0)\n"
        "wait(from = (rank + 1) % world, tag = 0, unit = 1024)\n"
        "scratch[0] = copy(input[0], unit = 1024)\n");
  const auto error = [&](const std::string& ops) { return import_text(of(ops).text()).errors; };
  CHECK_THAT(error(pipeline(copy, 2)),
             Contains("'copy' has 1 chunks, but the pipeline goes over 2"));
  CHECK_THAT(error(pipeline(pipeline(copy))), Contains("a pipeline can't be inside of another"));
  CHECK_THAT(error(pipeline(syncs("signal", "0"))),
             Contains("nothing in this pipeline moves chunks"));
  CHECK_THAT(error(pipeline(kPack)), Contains("'cpkt' can't be in a pipeline"));
  CHECK(statements(of(pipeline(R"({"name":"nop"})"))).empty());
}

TEST_CASE("mscclpp: groups of thread blocks cut chunks finer") {
  const auto slice = [](int id, int size) {
    return moves("put", own("i", 1), peers(1, 1),
                 fmt::format(R"("tbg_info":{{"tb_id":{},"tbg_size":{}}})", id, size));
  };
  Plan plan;
  plan.ops = {{slice(0, 2) + "," + moves("copy", own("i", 3), own("s", 0), R"("x":0)"), slice(1, 2),
               slice(2, 3)}};
  CHECK_THAT(imported(plan), Contains("chunks = 24, scratch = 24)"));
  CHECK(statements(plan) ==
        "# thread block 0\n"
        "output[6:9] @ (rank + 1) % world = put(input[6:9])\n"
        "scratch[0:6] = copy(input[18:24])\n"
        "# thread block 1\n"
        "output[9:12] @ (rank + 1) % world = put(input[9:12], block = 1)\n"
        "# thread block 2\n"
        "output[10:12] @ (rank + 1) % world = put(input[10:12], block = 2)\n");
  plan.ops = {{slice(0, 1021), slice(0, 1019)}};
  CHECK_THAT(import_text(plan.text()).errors, Contains("has more than 65536 chunks"));
  plan.ops = {{slice(2, 2)}};
  CHECK_THAT(import_text(plan.text()).errors, Contains("'tb_id' must be 0 to 1, found 2"));
}

TEST_CASE("mscclpp: switch channels read and write all ranks of a group") {
  const auto at = [](int index) {
    return fmt::format(R"({{"switch_channel_id":0,"index":{},"size":1}})", index);
  };
  const std::string type = R"("channel_type":"switch")";
  Plan plan = of(moves("glres", at(0), at(1), type + R"(,"reduce_op":"sum")"));
  plan.world = 3;
  CHECK(statements(plan) == "input[1] @ all = reduce(input[0] @ all)\n");
  plan.world = 2;
  plan.ops = {{moves("gstore", own("s", 0), at(2), type)}};
  CHECK(statements(plan) ==
        "input[2] = copy(scratch[0])\n"
        "input[2] @ (rank + 1) % world = put(scratch[0])\n");
  // What is stored in its own place goes to the others only.
  plan.ops = {{moves("gstore", own("o", 2), at(2), type)}};
  plan.in_place = true;
  CHECK(statements(plan) == "input[2] @ (rank + 1) % world = put(output[2])\n");
  plan.ops = {{kPack + "," + moves("gstorepkt", own("s", 3), at(3), type)}};
  plan.group = "s";
  CHECK(statements(plan) ==
        "scratch[3] = copy(input[0], packets = true)\n"
        "scratch[3] @ (rank + 1) % world = put(scratch[3], packets = true)\n");
  plan.ops = {{R"({"name":"glre","buffer_type":"s","buffer_offset":1,"size":1,)"
               R"("dst_chunk":{"rank":0,"type":"i","index":3,"size":1},"channel_ids":[0]})"}};
  CHECK(statements(plan) ==
        "input[3] = reduce(scratch[1] @ all, if = rank == 0)\n"
        "input[3] @ 0 = reduce(scratch[1] @ all, if = rank == 1)\n");
  plan.ops = {{moves("gstore", own("s", 0), at(4), type)}};
  CHECK_THAT(import_text(plan.text()).errors,
             Contains("chunks 4 to 4 are past the end of the scratch of rank 0, which has 4"));
  plan.ops = {{moves("put", own("i", 0), peers(0, 0), type)}};
  CHECK_THAT(import_text(plan.text()).errors, Contains("'put' can't go through a switch channel"));
}

TEST_CASE("mscclpp: all operations reduce in the same way") {
  const auto reduces = [](const std::string& more) {
    return moves("re", own("i", 0) + "," + own("s", 0), own("o", 0), more);
  };
  CHECK_THAT(imported(of(reduces(R"("reduce_op":"max")"))), Contains("(x, reduce = max, "));
  CHECK_THAT(error_of(of(reduces(R"("reduce_op":"max")") + "," + reduces(R"("x":0)"))),
             Contains("'max' and 'sum' can't be had in one collective") &&
                 Contains("note: 'max' is here"));
  CHECK_THAT(import_text(of(reduces(R"("reduce_op":"avg")")).text()).errors,
             Contains("'reduce_op' must be 'sum', 'min' or 'max', found 'avg'"));
  Plan plan = of(reduces(R"("x":0)"));
  plan.collective = "alltoall";
  CHECK_THAT(import_text(plan.text()).errors,
             Contains("'re' reduces, but 'alltoall' moves data and reduces nothing"));
}

TEST_CASE("mscclpp: the graph is of the collective") {
  Plan plan;
  plan.ops = {{""}};
  plan.collective = "allgather";
  plan.input = 2;
  CHECK_THAT(imported(plan), Contains("collective p(of = allgather, world = 2, chunks = 2, ") &&
                                 Contains("output y = allgather(x, algorithm = p)"));
  plan.input = 4;
  CHECK_THAT(error_of(plan), Contains("p.json:2:42: error: 'allgather' on 2 ranks must have 2 "
                                      "output chunks for an input chunk, found 4 and 4"));
  plan.collective = "reducescatter";
  plan.output = 2;
  CHECK_THAT(imported(plan), Contains("y = reduce_scatter(x, reduce = sum, algorithm = p)"));
  plan.world = 3;
  plan.input = 6;
  CHECK_THAT(imported(plan), Contains("bf16[65538]"));
  CHECK_THAT(imported(plan, {12, ir::DType::F32}), Contains("f32[12]"));
  CHECK_THAT(import_text(plan.text(), {10, ir::DType::F32}).errors,
             Contains("the number of elements must be a multiple of 3 for 'reduce_scatter'"));
  plan.collective = "sendrecv";
  CHECK_THAT(error_of(plan), Contains("there is no collective 'sendrecv' here"));
}

TEST_CASE("mscclpp: in place the executor needs the chunks of one buffer") {
  Plan plan;
  plan.ops = {{""}};
  plan.output = 0;
  CHECK_THAT(import_text(plan.text()).errors,
             Contains("'output_chunks' must be 1 to 65536, found 0"));
  plan.in_place = true;
  CHECK_THAT(imported(plan), Contains("chunks = 4, scratch = 4, in_place = true)"));
  CHECK(statements(plan).empty());
  plan.ops = {{moves("copy", own("o", 3), own("s", 0), R"("x":0)")}};
  CHECK(statements(plan) == "scratch[0] = copy(output[3])\n");
  plan.collective = "allgather";
  plan.ops = {{""}};
  CHECK_THAT(error_of(plan), Contains("'allgather' on 2 ranks must have 2 output chunks for an "
                                      "input chunk, found 4 and 0"));
}

TEST_CASE("mscclpp: of a plan in the older schema nothing else is said") {
  const std::string text =
      R"({"colletive":"allreduce","protocol":"Simple","gpus":[{"id":0,"inputChunks":2,)"
      R"("outputChunks":0,"threadblocks":[]},{"id":1,"inputChunks":2}]})";
  const Result r = import_text(text);
  CHECK(r.count == 1);
  CHECK_THAT(r.errors, Catch::Matchers::StartsWith("p.json:1:") &&
                           Contains("error: this is a plan of an older MSCCL++; write it with "
                                    "version 0.8 to 0.9"));
}

TEST_CASE("mscclpp: the root of a broadcast is the rank whose input is read") {
  Plan plan;
  plan.collective = "broadcast";
  plan.world = 3;
  // Rank 1 sends to rank 0 and rank 2, and rank 2 reads what it got.
  const std::string forward = moves("copy", own("i", 0), own("s", 0), R"("x":0)");
  plan.ops = {{""}, {moves("put", own("i", 0), peers(3, 0))}, {forward}};
  CHECK_THAT(imported(plan), Contains("y = broadcast(x, root = 1, algorithm = p)"));
  plan.ops[0][0] = forward;
  CHECK_THAT(error_of(plan), Contains("the inputs of ranks 0 and 1 are read"));
  plan.ops = {{""}};
  CHECK_THAT(error_of(plan), Contains("no rank's input is read"));
}

TEST_CASE("mscclpp: names become identifiers") {
  const auto [name, expected] = GENERATE(table<std::string, std::string>({
      {"all reduce-4.b", "all_reduce_4_b"},
      {"2steps", "plan_2steps"},
      {"", "plan_"},
      {"ring", "ring_plan"},
      {"a\\n}\\u00e4", "a____"},
  }));
  Plan plan = of("");
  plan.name = name;
  const std::string text = imported(plan);
  CHECK_THAT(text, Contains("collective " + expected + "(of") &&
                       Contains("graph " + expected + "(world") &&
                       Contains("algorithm = " + expected + ")"));
}

TEST_CASE("mscclpp: what is wrong is told where it stands") {
  // The second is put in place of the first.
  const auto [from, to, error] = GENERATE(table<std::string, std::string, std::string>({
      {R"("name":"p",)", "", "p.json:1:1: error: 'name' is missing"},
      {R"("inplace":false)", R"("inplace":0)", "'inplace' must be a boolean, found an integer"},
      {R"("name":"p")", R"("name":"p","name":"q")", "'name' is given twice"},
      {R"("id":1)", R"("id":0)", "'id' must be 1, found 0"},
      {R"("id":0,"input_chunks":4)", R"("id":0,"input_chunks":0)",
       "'input_chunks' must be 1 to 65536, found 0"},
      {R"("id":1,"input_chunks":4)", R"("id":1,"input_chunks":2)",
       "'input_chunks' must be the same on all ranks: it is 4 on rank 0 and 2 on rank 1"},
      {R"("id":0,"input_chunks":4)", R"("id":0,"inputChunks":4)", "a plan of an older MSCCL++"},
      {R"("id":0,"ops")", R"("id":1,"ops")", "'id' must be 0, found 1"},
      {R"("connected_to":[1])", R"("connected_to":[2])",
       "an entry of 'connected_to' must be 0 to 1, found 2"},
      {R"("connected_to":[1])", R"("connected_to":[0])",
       "an entry of 'connected_to' is rank 0 itself"},
      {R"("connected_to":[1])", R"("connected_to":["1"])", "must be an integer, found a string"},
      {R"("ranks":[0,1])", R"("ranks":[1])", "rank 0 has a switch channel of a group"},
      {R"("ranks":[0,1])", R"("ranks":[0,1,0])", "rank 0 is in the group twice"},
      {R"({"rank":1,"type":"i")", R"({"rank":1,"type":"x")", "'type' must be 'i', 'o' or 's'"},
      {R"("access_channel_types":["memory","port"])", R"("access_channel_types":["port"])",
       "remote buffer 0 isn't reached through memory channels"},
      {R"("memory","channel_ids":[0])", R"("memory","channel_ids":[1])",
       "an entry of 'channel_ids' must be 0 to 0, found 1"},
      {R"("remote_buffer_ids":[0,1,2])", R"("remote_buffer_ids":[-1])",
       "an entry of 'remote_buffer_ids' must be 0 to 2, found -1"},
      {R"("name":"put")", R"("name":"putt")", "unknown operation 'putt'; did you mean 'put'?"},
      {R"("name":"put")", R"("name":7)", "'name' must be a string, found an integer"},
      {R"({"type":"i","index":0,"size":1})", R"({"type":"i","index":4,"size":1})",
       "chunks 4 to 4 are past the end of the input of rank 0, which has 4"},
      {R"({"type":"i","index":0,"size":1})", R"({"type":"i","index":0,"size":0})",
       "'size' must be 1 to 65536, found 0"},
      {R"({"type":"i","index":0,"size":1})", R"({"type":"i","index":0,"size":2})",
       "all chunks of 'put' must be of one size, found 2 and 1"},
      {R"({"type":"i","index":0,"size":1})", R"({"buffer_id":0,"index":0,"size":1})",
       "this must be memory of the rank itself"},
      {R"({"type":"i","index":0,"size":1})", R"({"index":0,"size":1})", "'type' is missing"},
      {R"({"type":"i","index":0,"size":1})", "", "must have as many sources as destinations"},
      {R"("buffer_id":0)", R"("buffer_id":3)", "'buffer_id' must be 0 to 2, found 3"},
      {R"("buffer_id":0)", R"("type":"o")", "this must be memory of a peer"},
      {R"("channel_type":"memory","z":0)", R"("channel_type":"smoke")",
       "'channel_type' must be 'memory', 'port' or 'switch', found 'smoke'"},
      {R"("channel_type":"memory","z":0)", R"("channel_type":"port","channel_ids":[])",
       "'put' must have a channel for each destination, found 0 for 1"},
  }));
  std::string text =
      of(moves("put", own("i", 0), peers(0, 0), R"("channel_type":"memory","z":0)")).text();
  const size_t at = text.find(from);
  INFO(from << " -> " << to);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  const Result r = import_text(text);
  CHECK_THAT(r.errors, Contains(error));
  CHECK(r.count == 1);
}

TEST_CASE("mscclpp: any text gives diagnostics") {
  for (const char* text :
       {"", "[]", "7", "{", "{}", R"({"name":"a","inplace":true,"collective":"allreduce"})",
        R"({"name":"a","inplace":true,"collective":"allreduce","gpus":[]})",
        R"({"name":"a","inplace":true,"collective":"allreduce","gpus":[7,null,{}]})",
        R"({"max_message_size":18446744073709551616})", R"({"max_message_size")",
        R"({"max_message_size":)", R"({"gpus":18446744073709551616})"})
    CHECK_FALSE(import_text(text).errors.empty());
  CHECK_FALSE(import_text(std::string(100'000, '[')).text);
  std::string ranks;
  for (int i = 0; i < 65; ++i) ranks += i == 0 ? "{}" : ",{}";
  CHECK_THAT(
      import_text(R"({"name":"a","inplace":true,"collective":"allreduce","gpus":[)" + ranks + "]}")
          .errors,
      Contains("a plan must be for 1 to 64 ranks, found 65"));
}

TEST_CASE("mscclpp: tokens changed at random give a plan or diagnostics") {
  Plan plan;
  plan.semaphores = {R"({"init_value":1})"};
  plan.ops = {
      {kPack + "," +
           moves("respkt", own("i", 0) + "," + own("s", 3), own("i", 0) + "," + peers(2, 3)) + "," +
           syncs("signal", "0"),
       syncs("wait", "0") +
           R"(,{"name":"barrier","barrier_id":0,"num_threadblocks":1},)"
           R"({"name":"sem_acquire","semaphore_ids":[0]},)"
           R"({"name":"pipeline","iter_context":{"unit_size":8,"num_chunks":1},"ops":[)" +
           moves("copy", own("i", 0), own("o", 0), R"("tbg_info":{"tb_id":0,"tbg_size":1})") +
           "]}"}};
  const std::string text = plan.text();
  const char* tokens[] = {"0",        "-1",        "3",    "65536",     "9223372036854775807",
                          "null",     "1.5",       "\"\"", "\"s\"",     "{}",
                          "\"port\"", "\"glres\"", "[]",   "\"gstore\""};
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string changed = text;
    const size_t at = changed.find_first_of("\"0123456789", random() % changed.size());
    if (at == std::string::npos) continue;
    const size_t end = changed[at] == '"' ? changed.find('"', at + 1)
                                          : changed.find_first_not_of("0123456789", at) - 1;
    changed.replace(at, std::min(end, changed.size() - 1) - at + 1,
                    tokens[random() % std::size(tokens)]);
    if (const Result r = import_text(changed); r.text) check_language(*r.text);
  }
}

TEST_CASE("mscclpp: formulas over the ranks") {
  const auto formula = [](std::vector<int32_t> ranks, int32_t world,
                          const std::vector<int64_t>& values) {
    frontend::RankFormulas formulas(std::move(ranks), world);
    const auto& found = formulas.find(values);
    return found ? found->text() : "none";
  };
  const std::vector<int32_t> four = {0, 1, 2, 3};
  CHECK(formula(four, 4, {0, 0, 0, 0}) == "0");
  CHECK(formula(four, 4, {-2, -2, -2, -2}) == "-2");
  CHECK(formula(four, 4, {2, 6, 10, 14}) == "4 * rank + 2");
  CHECK(formula(four, 4, {3, 2, 1, 0}) == "3 - rank");
  CHECK(formula(four, 4, {1, 2, 3, 0}) == "(rank + 1) % world");
  CHECK(formula(four, 4, {7, 10, 1, 4}) == "3 * ((rank + 2) % world) + 1");
  CHECK(formula(four, 4, {2, 2, 1, 1}) == "1 + (rank <= 1)");
  CHECK(formula(four, 4, {0, 0, 1, 2}) == "rank - 1 + (rank <= 0)");
  CHECK(formula({0, 1, 2, 3, 4, 5, 6, 7}, 8, {1, 0, 3, 2, 5, 4, 7, 6}) ==
        "rank - 2 * (rank % 2) + 1");
  CHECK(formula(four, 4, {2, 1, 0, 3}) == "(2 - rank) % world");
  CHECK(formula(four, 4, {0, 5, 2, 9}) == "none");
  CHECK(formula({0, 2, 3}, 4, {12, 16, 16}) == "12 + 4 * (rank > 0)");
  // Two nodes of four: the next rank of the same node, and the same rank of the other node.
  CHECK(formula({0, 1, 2, 3, 4, 5, 6, 7}, 8, {1, 2, 3, 0, 5, 6, 7, 4}) ==
        "4 * (rank / 4) + (rank + 1) % 4");
  CHECK(formula({0, 1, 2, 3, 4, 5, 6, 7}, 8, {4, 5, 6, 7, 0, 1, 2, 3}) == "(rank + 4) % world");
}
