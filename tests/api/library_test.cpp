// Tests the library for applications, through its public headers and its shared object alone.
#include <maco/maco.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/paths.h"

namespace maco::test {
namespace {

using namespace maco::types;  // NOLINT: as applications do

const char* const kText = R"(graph g(world = 2) {
  dim n <= 6
  scalar pos in [0, 5)
  input x : f32[n, 8]
  state cache : f32[10, 8]
  cache = kv_append(cache, x, at = pos)
  output y = allreduce(x)
})";

CompileOptions cpu() {
  CompileOptions options;
  options.target = "cpu";
  return options;
}
SessionOptions on_cpu() {
  SessionOptions options;
  options.device = Device::Cpu;
  return options;
}
Session open(const Graph& graph) {
  return Session::open(compile(graph, cpu()).value(), on_cpu()).value();
}

TEST_CASE("a graph tells of its tensors, dims and scalars, and gives its text") {
  const Graph g = Graph::parse(kText).value();
  CHECK(g.name() == "g");
  CHECK(g.world() == 2);
  REQUIRE(g.tensors().size() == 3);
  const TensorInfo cache = g.tensors()[1];
  CHECK((cache.name == "cache" && cache.kind == TensorKind::State && cache.dtype == f32));
  CHECK((cache.shape == std::vector<int64_t>{10, 8} && cache.bytes == 320));
  CHECK(g.tensors()[0].shape == std::vector<int64_t>{6, 8});
  REQUIRE((g.dims().size() == 1 && g.scalars().size() == 1));
  CHECK((g.dims()[0].lowest == 1 && g.dims()[0].highest == 6));
  CHECK((g.scalars()[0].lowest == 0 && g.scalars()[0].highest == 4));
  CHECK(Graph::parse(g.to_json()).value().to_maco() == g.to_maco());
}

TEST_CASE("what is wrong with a text is a value, with its place") {
  const auto wrong = Graph::parse("graph g {\n  output y = relu(z)\n}\n", "my.maco");
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == ErrorCode::InvalidGraph);
  REQUIRE_FALSE(wrong.error().diagnostics.empty());
  const Diagnostic& d = wrong.error().diagnostics[0];
  CHECK((d.file == "my.maco" && d.line == 2 && d.severity == Diagnostic::Severity::Error));
  CHECK_THAT(wrong.error().message, Contains("my.maco:2:") && Contains("^"));
  CHECK_THROWS_AS(wrong.value(), BadResult);
  CHECK(Graph::read("/nonexisting/graph").error().code == ErrorCode::InvalidArgument);
}

TEST_CASE("ops may name collectives of other texts, and plans can be exchanged") {
  const std::string own =
      "collective mine(of = allgather) {\n  output[rank] @ all = put(input[0])\n}\n";
  const auto ran = [](const Graph& graph) {
    Session s = Session::open(compile(graph, cpu()).value(), on_cpu()).value();
    s.allocate().value();
    const std::vector<float> ones(12, 1.0f), twos(12, 2.0f);
    s.write(0, "x", ones.data(), 48).value();
    s.write(1, "x", twos.data(), 48).value();
    s.run().value();
    std::vector<float> y(24);
    s.read(1, "y", y.data(), 96).value();
    return y[0] == 1.0f && y[11] == 1.0f && y[12] == 2.0f && y[23] == 2.0f;
  };
  const char* text = R"(graph g(world = 2) {
  input x : f32[12]
  output y = allgather(x, algorithm = mine)
}
)";
  CHECK_FALSE(Graph::parse(text));
  CHECK(ran(Graph::parse(text, "g", {own}).value()));
  CHECK(Graph::parse(text, "g", {"collective mine {"}).error().code == ErrorCode::InvalidGraph);

  GraphBuilder builder("g", 2);
  builder.collectives(own);
  const Tensor x = builder.input("x", f32, {12});
  builder.output("y", builder.allgather(x, "mine"));
  CHECK(ran(builder.build().value()));

  const std::string plan = import_plan(R"({
    "name": "mine", "collective": "allgather", "protocol": "Simple", "inplace": false,
    "gpus": [
      {"id": 0, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0,
       "channels": [{"channel_type": "memory", "connected_to": [1]}],
       "remote_buffers": [{"rank": 1, "type": "o", "access_channel_types": ["memory"]}],
       "threadblocks": [{"id": 0, "channels": [{"channel_type": "memory", "channel_ids": [0]}],
         "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
         "ops": [
           {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"type": "o", "index": 0, "size": 1}]},
           {"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}], "channel_type": "memory"},
           {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
           {"name": "wait", "channel_ids": [0], "channel_type": "memory"}]}]},
      {"id": 1, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0,
       "channels": [{"channel_type": "memory", "connected_to": [0]}],
       "remote_buffers": [{"rank": 0, "type": "o", "access_channel_types": ["memory"]}],
       "threadblocks": [{"id": 0, "channels": [{"channel_type": "memory", "channel_ids": [0]}],
         "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
         "ops": [
           {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"type": "o", "index": 1, "size": 1}]},
           {"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"buffer_id": 0, "index": 1, "size": 1}], "channel_type": "memory"},
           {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
           {"name": "wait", "channel_ids": [0], "channel_type": "memory"}]}]}]})")
                               .value();
  CHECK(ran(Graph::parse(text, "g", {plan}).value()));
  CHECK(import_plan("{}").error().code == ErrorCode::InvalidGraph);
}

TEST_CASE("what the compiler says of a graph has its place in the source") {
  const Graph dead =
      Graph::parse("graph g {\n  input x : f32[4]\n  d = relu(x)\n  output y = exp(x)\n}\n",
                   "d.maco")
          .value();
  const Kernel kernel = compile(dead, cpu()).value();
  REQUIRE(kernel.warnings().size() == 1);
  CHECK((kernel.warnings()[0].file == "d.maco" && kernel.warnings()[0].line == 3));
  CHECK(kernel.warnings()[0].severity == Diagnostic::Severity::Warning);
  const Graph twoshot = Graph::parse(
                            "graph g(world = 2) {\n  input x : f32[4]\n"
                            "  output y = allgather(x, algorithm = twoshot)\n}\n",
                            "n.maco")
                            .value();
  const auto refused = compile(twoshot, cpu());
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Contains("n.maco:3:") && Contains("algorithm = twoshot"));
  GraphBuilder g("unused");
  const Tensor x = g.input("x", f32, {4});
  g.relu(x);
  g.output("y", g.exp(x));
  CHECK_THAT(compile(g.build().value(), cpu()).value().warnings().at(0).file,
             Contains("library_test.cpp"));
  GraphBuilder many("many");
  const Tensor z = many.input("z", f32, {4});
  for (int i = 0; i < 30; ++i) many.relu(z);
  many.output("y", many.exp(z));
  const Graph unused = many.build().value();
  const auto some = compile(unused, cpu()).value().warnings();
  CHECK(some.size() == 21);
  CHECK(some.back().severity == Diagnostic::Severity::Note);
  CHECK(some.back().message == "and 10 more warnings like this");
  CompileOptions all = cpu();
  all.max_warnings = 0;
  CHECK(compile(unused, all).value().warnings().size() == 30);
  all.max_warnings = -1;
  CHECK(compile(unused, all).error().code == ErrorCode::InvalidArgument);
  CompileOptions negative;
  negative.sms = -1;
  CHECK(compile(twoshot, negative).error().code == ErrorCode::InvalidArgument);
}

TEST_CASE("a builder takes numbers of all types, and tensors of its own only") {
  GraphBuilder g("numbers");
  const std::vector<int> three(3);
  const Tensor x = g.input("x", f32, {three.size(), 4u, int64_t{2}});
  g.output("y", g.op("sum", {x}, {}, {.name = "y"}));
  std::optional<Tensor> stale;
  {
    GraphBuilder gone("gone");
    stale = gone.input("x", f32, {4});
  }
  GraphBuilder next("next");
  next.output("z", *stale);
  CHECK_THAT(next.build().error().message, Contains("no tensor of this builder"));
  Tensor cache = g.state("cache", f32, {8, 2});
  cache = g.kv_append(cache, g.input("rows", f32, {2, 2}), 0, {.name = "append"});
  g.output("late", g.copy(x, {.after = {"append"}}));
  CHECK_THAT(g.build().value().to_maco(),
             Contains("cache = kv_append(cache, rows, at = 0) @append"));
}

TEST_CASE("a builder takes kernels of users, their lists and maps as text") {
  GraphBuilder g("own");
  const Tensor x = g.input("x", f32, {64, 32});
  const Attrs attrs = {{"source", test::source_path("tests/cuda/keys/keys.cu")},
                       {"kernel", "scale"},
                       {"template", "[float, 3]"},
                       {"grid", "[64]"},
                       {"block", "[32]"},
                       {"args", "[x, y, 32, 0.5]"},
                       {"types", "{y: {dtype: f32, shape: [64, 32]}}"},
                       {"reads", "{x: [[bx, bx + 1]]}"},
                       {"writes", "{y: [[bx, bx + 1]]}"}};
  g.output("y", g.op("cuda", {x}, attrs, {.name = "y"}));
  const Graph graph = g.build().value();
  const auto kernel = compile(graph, cpu());
  if (!kernel && kernel.error().message.find("needs Clang") != std::string::npos) {
    WARN("not tested here: " << kernel.error().message);
    return;
  }
  Session session = Session::open(kernel.value(), on_cpu()).value();
  std::vector<float> in(64 * 32, 2.0f), out(64 * 32);
  session.allocate().value();
  session.write(0, "x", in.data(), 64 * 32 * 4).value();
  session.run().value();
  session.read(0, "y", out.data(), 64 * 32 * 4).value();
  CHECK(out == std::vector<float>(64 * 32, 3.0f));

  GraphBuilder wrong("wrong");
  const Tensor z = wrong.input("x", f32, {4});
  wrong.output("y", wrong.op("cuda", {z}, {{"grid", "[4"}}, {.name = "y"}));
  CHECK_THAT(wrong.build().error().message, Contains("library_test.cpp") && Contains("in '[4'"));
}

TEST_CASE("a graph that is built is the graph of its text") {
  GraphBuilder g("built", 2);
  const Expr n = g.dim("n", 64, {.lowest = 2, .typical = 4});
  const Expr pos = g.scalar("pos", 0, 100, 10);
  const Tensor x = g.input("x", bf16, {n, 64});
  const Tensor w = g.param("w", bf16, {64, Expr::world() * 32});
  const Tensor norm = g.param("norm", bf16, {64});
  Tensor cache = g.state("cache", bf16, {256, 64});
  const Tensor h = g.matmul(g.rmsnorm(x, norm, 1e-5), w,
                            {.transpose_b = true, .activation = "silu"}, {.name = "h"});
  const Tensor turned = g.rope(h, {.head_dim = 32, .position = pos, .scaling = {}});
  cache = g.kv_append(cache, turned, pos);
  const Tensor a =
      g.attention(turned, cache, cache,
                  {.head_dim = 32, .causal = true, .length = pos + n, .window = 40, .softcap = 30});
  const Tensor frequencies = g.param("frequencies", f32, {8});
  g.output("turned",
           g.rope_by_frequencies(
               a, frequencies,
               {.head_dim = 32, .position = pos, .rotary_dim = 16, .attention_factor = 1.5}));
  const auto parts = g.split(a, 1, 2);
  const Tensor sum = g.allreduce(parts[0], {.reduce = "max"}, {.priority = "high"});
  g.barrier();
  g.send(sum, Expr(1) - Expr::rank(), {.tag = 3});
  g.output("got", g.recv(Expr(1) - Expr::rank(), bf16, {n, 32}, {.tag = 3}, {.priority = "low"}));
  g.send(sum, 1, {.condition = "rank == 0"}, {.name = "forth"});
  g.output("down", g.recv(0, bf16, {n, 32}, {.condition = "rank == 1"}));
  g.output("y", g.add(sum, parts[1]));
  g.output("again", sum);
  g.output("wide", g.cast(parts[1], f32));
  g.output("late", g.mul(x, 2, {.after = {"h"}}));
  const auto built = g.build();
  INFO((built ? std::string() : built.error().message));
  REQUIRE(built);
  CHECK(built->to_maco() == Graph::parse(R"(graph built(world = 2) {
    dim 2 <= n <= 64 typical 4
    scalar pos in [0, 100) typical 10
    input x : bf16[n, 64]
    param w : bf16[64, world * 32]
    param norm : bf16[64]
    state cache : bf16[256, 64]
    param frequencies : f32[8]
    rmsnorm.0 = rmsnorm(x, norm, eps = 1e-5)
    h = matmul(rmsnorm.0, w, transpose_b = true, activation = silu)
    rope.0 = rope(h, head_dim = 32, position = pos, theta = 10000.0)
    cache = kv_append(cache, rope.0, at = pos)
    attention.0 = attention(rope.0, cache, cache, head_dim = 32, causal = true, length = pos + n, window = 40, softcap = 30.0)
    output turned = rope(attention.0, frequencies, head_dim = 32, position = pos, rotary_dim = 16, attention_factor = 1.5)
    split.0, split.1 = split(attention.0, axis = 1)
    output again = allreduce(split.0, reduce = max, algorithm = auto, priority = high)
    barrier()
    send(again, dst = 1 - rank, tag = 3, if = 1)
    output got = recv(src = 1 - rank, shape = [n, 32], tag = 3, if = 1, dtype = bf16, priority = low)
    send(again, dst = 1, tag = 0, if = rank == 0) @forth
    output down = recv(src = 0, shape = [n, 32], tag = 0, if = rank == 1, dtype = bf16)
    output y = add(again, split.1)
    output wide = cast(split.1, dtype = f32)
    output late = mul(x, value = 2.0, after = h)
  })")
                                .value()
                                .to_maco());
}

TEST_CASE("a mistake of a builder is reported where the call stands") {
  GraphBuilder g("wrong"), other("other");
  const Tensor x = g.input("x", f32, {4, 8});
  const unsigned line = Where::current().line() + 1;
  g.output("y", g.matmul(x, x));
  auto built = g.build();
  REQUIRE_FALSE(built);
  REQUIRE_FALSE(built.error().diagnostics.empty());
  CHECK(built.error().diagnostics[0].line == static_cast<int>(line));
  CHECK_THAT(built.error().diagnostics[0].file, Contains("library_test.cpp"));
  GraphBuilder mixed("mixed");
  mixed.output("y", mixed.relu(x));
  CHECK_THAT(mixed.build().error().message, Contains("no tensor of this builder"));
  GraphBuilder unknown("unknown");
  unknown.output("y", unknown.op("matmull", {unknown.input("x", f32, {4})}));
  CHECK_THAT(unknown.build().error().message, Contains("did you mean 'matmul'"));
}

TEST_CASE("a builder's settings and attributes are checked as a text's are, all at once") {
  const auto built = [](const std::string& tasks) {
    GraphBuilder g("set", 2);
    const Tensor x = g.input("x", f32, {8, 32});
    const Tensor h = g.op("reshape", {x}, {{"shape", Shape{4, "world * 32"}}}, {.name = "h"});
    g.output("y", g.allreduce(h, {}, {.phase = "late", .overlap = "conservative"}));
    g.set("schedule", "static");
    g.set("comm_buffer_bytes", 1 << 20);
    g.set("phases", "[{name: early}, {name: late, depends_on: [early]}]");
    g.set("sm_roles",
          "[{sms: [0, 6], role: compute}, {sms: [6, 8], role: comm, tasks: [" + tasks + "]}]");
    return g.build();
  };
  const auto right = built("allreduce");
  INFO((right ? std::string() : right.error().message));
  REQUIRE(right);
  CHECK_THAT(right->to_maco(), Contains("tasks: [allreduce]") &&
                                   Contains("late depends_on early") &&
                                   Contains("comm_buffer_bytes = 1048576"));
  CHECK_THAT(built("alreduce").error().message,
             Contains("unknown kind of op 'alreduce'; did you mean 'allreduce'?"));

  GraphBuilder g("wrong", 2);
  const Tensor x = g.input("x", f32, {8, 32});
  g.output("a", g.op("relu", {x}, {{"slope", 2}}, {.overlap = "some"}));
  g.output("b", g.op("rope", {x}, {{"head_dim", 32}, {"position", "pso"}}));
  g.output("c", g.op("mul", {x}, {{"value", "1 / 2"}}));
  g.set("schedul", "static");
  const std::string told = g.build().error().message;
  for (const char* says : {"'relu' has no attribute 'slope'", "'overlap' of 'relu' must be 'none'",
                           "unknown name 'pso' in 'position' of 'rope'",
                           "'value' of 'mul' must be a number, found '1 / 2'",
                           "unknown key 'schedul' in the graph; did you mean 'schedule'?"})
    CHECK_THAT(told, Contains(says));
  GraphBuilder twice("twice");
  const Tensor z = twice.input("x", f32, {8});
  twice.input("x", f32, {8});
  twice.output("y", twice.op("mul", {z}, {{"value", 2}, {"value", 3}}));
  CHECK_THAT(twice.build().error().message, Contains("'value' of 'mul' is given twice"));
}

TEST_CASE("a kernel runs in the caller's memory") {
  Session s = open(Graph::parse(kText).value());
  CHECK_THAT(s.run({{"pos", 0}}).error().message, Contains("'x' of rank 0 has no memory"));
  alignas(16) std::array<float, 48> x[2], y[2];
  alignas(16) std::array<float, 84> cache[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < x[rank].size(); ++i) x[rank][i] = static_cast<float>(i + 100 * rank);
    s.bind(rank, "x", x[rank].data(), 192).value();
    s.bind(rank, "y", y[rank].data(), 192).value();
    s.bind(rank, "cache", cache[rank].data(), 320).value();
    CHECK(s.address(rank, "x").value() == x[rank].data());
  }
  s.run({{"pos", 4}, {"n", 3}}).value();
  for (int rank = 0; rank < 2; ++rank)
    for (size_t i = 0; i < 24; ++i) {
      CHECK(y[rank][i] == static_cast<float>(2 * i + 100));
      CHECK(cache[rank][32 + i] == x[rank][i]);
    }
  CHECK(cache[0][56] == 0);
  // At another address from the next launch on.
  alignas(16) std::array<float, 48> moved = {};
  s.bind(1, "y", moved.data(), 192).value();
  s.run({{"pos", 0}}).value();
  CHECK(moved[47] == 2 * 47 + 100);

  CHECK_THAT(s.bind(0, "x", x[0].data(), 188).error().message, Contains("has 192 bytes"));
  CHECK_THAT(s.bind(0, "cache", cache[0].data() + 1, 320).error().message,
             Contains("no multiple of 16"));
  CHECK_THAT(s.bind(2, "x", x[0].data(), 192).error().message, Contains("no rank 2"));
  CHECK_THAT(s.bind(0, "cach", x[0].data(), 192).error().message, Contains("did you mean 'cache'"));
  CHECK_THAT(s.bind(0, "x", nullptr, 192).error().message, Contains("null"));
  CHECK_THAT(s.run({{"pos", 5}}).error().message, Contains("must be from 0 to 4"));
  CHECK_THAT(s.run({}).error().message, Contains("pos"));
}

TEST_CASE("a kernel has variants, of which each launch takes one") {
  std::string text = kText;
  text.insert(text.find("  input"),
              "  set sm_roles = {when: [{if: n <= 3 && pos > 0, roles: {compute: 2, comm: 1}}, "
              "{else: {compute: 3, comm: 2}}]}\n");
  const Kernel kernel = compile(Graph::parse(text).value(), cpu()).value();
  CHECK_THAT(kernel.report(),
             Contains("variant 1, if n <= 3 && pos > 0") && Contains("variant 2, else"));
  for (const Kernel& k : {kernel, Kernel::from_source(kernel.source()).value()}) {
    CHECK(k.tensors().size() == 3);
    Session s = Session::open(k, on_cpu()).value();
    s.allocate().value();
    std::array<float, 48> x;
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    for (int rank = 0; rank < 2; ++rank) s.write(rank, "x", x.data(), 192).value();
    s.run({{"pos", 0}}).value();
    s.run({{"pos", 4}, {"n", 2}}).value();
    s.launch({{"pos", 2}, {"n", 1}}).value();
    s.launch({{"pos", 0}, {"n", 1}}).value();
    s.wait().value();
    // Rows 0 to 5 of x come from the first launch, later launches replace some; all in one cache.
    std::array<float, 80> cache;
    s.read(1, "cache", cache.data(), 320).value();
    const std::array<float, 10> first = {0, 8, 0, 24, 0, 8, 0, 0, 0, 0};
    for (size_t row = 0; row < first.size(); ++row) CHECK(cache[8 * row] == first[row]);
    CHECK_THAT(s.run({{"n", 1}}).error().message, Contains("pos"));
    const int32_t at = 1;
    CHECK_THAT(s.launch({{"pos", value_at(&at)}, {"n", 1}}).error().message, Contains("'pos'"));
  }
  SessionOptions options = on_cpu();
  options.profile = true;
  CHECK_THAT(Session::open(kernel, options).error().message, Contains("variants"));
}

TEST_CASE("two kernels share params and states") {
  Session first = open(Graph::parse("graph a {\n  input x : f32[2, 4]\n  state c : f32[8, 4]\n"
                                    "  param w : f32[4]\n  c = kv_append(c, x, at = 0)\n"
                                    "  output y = mul(x, w)\n}\n")
                           .value());
  Session second = open(Graph::parse("graph b {\n  state c : f32[8, 4]\n  param w : f32[4]\n"
                                     "  output z = mul(c, w)\n}\n")
                            .value());
  first.allocate().value();
  second.share(first).value();
  second.allocate().value();
  CHECK(second.address(0, "c").value() == first.address(0, "c").value());
  const std::array<float, 8> x = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::array<float, 4> w = {10, 100, 1000, 10000};
  first.write(0, "x", x.data(), 32).value();
  first.write(0, "w", w.data(), 16).value();
  first.run().value();
  second.run().value();
  std::array<float, 32> z;
  second.read(0, "z", z.data(), 128).value();
  CHECK((z[0] == 10 && z[5] == 600 && z[7] == 80000 && z[8] == 0));
  CHECK(second.bench({}, 3).value() > 0);
  // Tensors that have memory keep it.
  first.share(first).value();
  first.bind(0, "w", first.address(0, "w").value(), 16).value();
  first.run().value();
  std::array<float, 8> y;
  first.read(0, "y", y.data(), 32).value();
  CHECK(y[7] == 80000);

  Session other =
      open(Graph::parse("graph c {\n  param w : f32[5]\n  output z = relu(w)\n}\n").value());
  CHECK_THAT(other.share(first).error().message, Contains("another type or shape"));
}

TEST_CASE("what takes long while a session is opened is told") {
  std::vector<std::string> told;
  SessionOptions options = on_cpu();
  options.progress = [&](std::string_view what) { told.emplace_back(what); };
  const Kernel kernel = compile(Graph::parse(kText).value(), cpu()).value();
  REQUIRE(Session::open(kernel, options));
  REQUIRE(told.size() == 2);
  CHECK_THAT(told[0], Contains("compiling the kernel"));
  CHECK(told[1].empty());
}

TEST_CASE("a launch that isn't waited for tells its failure at the next call") {
  Session s = open(Graph::parse("graph e {\n  param t : f32[4, 2]\n  input i : i32[2]\n"
                                "  output y = embedding(t, i)\n}\n")
                       .value());
  CHECK_THAT(s.launch().error().message, Contains("has no memory"));
  s.allocate().value();
  s.launch().value();
  CHECK(s.ended().value());
  const std::array<int32_t, 2> wrong = {0, 7};
  s.write(0, "i", wrong.data(), 8).value();
  s.launch().value();
  CHECK_THAT(s.launch().error().message, Contains("index 7"));
  s.launch().value();
  CHECK_THAT(s.wait().error().message, Contains("index 7"));
  const std::array<int32_t, 2> right = {0, 3};
  s.write(0, "i", right.data(), 8).value();
  s.launch().value();
  CHECK(s.wait());
  void* const streams[2] = {};
  CHECK_THAT(s.launch({}, streams).error().message, Contains("2 streams for 1 rank"));
}

TEST_CASE("dims and scalars may lie in memory, on each rank") {
  // The values that a launch derives use every operator, and all of them are exact.
  Session s = open(Graph::parse(R"(graph g(world = 2) {
    dim n <= 6
    scalar pos in [-9, 5)
    input x : f32[n, 8]
    state cache : f32[40, 8]
    cache = kv_append(cache, x, at = (pos * -7 / 4 + rank * 3) % 17 + (pos < -2 || n == 3 && !pos))
    output y = allreduce(x)
  })")
                       .value());
  s.allocate().value();
  std::array<float, 48> x;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
  for (int rank : {0, 1}) s.write(rank, "x", x.data(), sizeof x).value();
  const auto caches = [&] {
    std::array<std::array<float, 320>, 2> all;
    for (int rank : {0, 1}) {
      auto& cache = all[static_cast<size_t>(rank)];
      s.read(rank, "cache", cache.data(), sizeof cache).value();
      const std::array<float, 320> zeros{};
      s.write(rank, "cache", zeros.data(), sizeof zeros).value();
    }
    return all;
  };
  std::array<int32_t, 2> pos{}, n{};
  const Values in_memory = {{"pos", std::vector<const int32_t*>{&pos[0], &pos[1]}},
                            {"n", std::vector<const int32_t*>{&n[0], &n[1]}}};
  for (int32_t at = -9; at < 5; ++at)
    for (int32_t rows : {1, 3, 6}) {
      INFO(at << " " << rows);
      s.run({{"pos", at}, {"n", rows}}).value();
      const auto expected = caches();
      pos.fill(at);
      n.fill(rows);
      s.run(in_memory).value();
      CHECK(caches() == expected);
    }
  n.fill(7);
  const Status told = s.run(in_memory);
  REQUIRE_FALSE(told);
  CHECK(told.error().code == ErrorCode::RunFailed);
  CHECK_THAT(told.error().message, Contains("rank 1: dim 'n' is 7, but must be from 1 to 6"));
  n.fill(6);
  s.run(in_memory).value();
  CHECK(s.launch({{"pos", value_at(pos.data())}}).error().code == ErrorCode::InvalidArgument);
  CHECK_THAT(s.bench(in_memory, 1).error().message, Contains("a measurement needs numbers"));
}

TEST_CASE("a launch is profiled where that was asked for") {
  const Kernel kernel = compile(Graph::parse(kText).value(), cpu()).value();
  SessionOptions options = on_cpu();
  options.profile = true;
  Session s = Session::open(kernel, options).value();
  s.allocate().value();
  CHECK_FALSE(s.profile());  // nothing has run
  s.run({{"pos", 0}}).value();
  const Profile p = s.profile().value();
  CHECK_THAT(p.table, Contains("allreduce") && Contains("kv_append"));
  CHECK(p.trace.front() == '[');
  Session plain = Session::open(kernel, on_cpu()).value();
  CHECK_THAT(plain.profile().error().message, Contains("without stamps"));
  const Kernel source = Kernel::from_source(plain.kernel().source()).value();
  const Session unknown = Session::open(source, {.device = Device::Cpu}).value();
  CHECK_THAT(unknown.profile().error().message, Contains("came as source"));
  CHECK_FALSE(Session::open(Kernel::from_source(kernel.source()).value(), options));
}

TEST_CASE("what can't be opened or compiled says why") {
  const Graph g = Graph::parse(kText).value();
  CompileOptions wrong;
  wrong.target = "sm_1";
  CHECK_THAT(compile(g, wrong).error().message, Contains("unknown target 'sm_1'"));
  CHECK(Kernel::from_source("int main() {}").error().code == ErrorCode::InvalidArgument);
  const Kernel kernel = compile(g, cpu()).value();
  CHECK(Kernel::from_source(kernel.source()).value().tensors().size() == 3);
  CHECK_THAT(kernel.report(), Contains("allreduce"));
  SessionOptions cuda;
  CHECK(Session::open(kernel, cuda).error().code == ErrorCode::Unavailable);
  SessionOptions never = on_cpu();
  never.timeout = std::chrono::milliseconds(0);
  CHECK(Session::open(kernel, never).error().code == ErrorCode::InvalidArgument);
  CHECK(std::string(version()) == MACO_VERSION);
}

TEST_CASE("sessions open and close") {
  const Kernel kernel = compile(Graph::parse(kText).value(), cpu()).value();
  for (int i = 0; i < 100; ++i) {
    Session s = Session::open(kernel, on_cpu()).value();
    s.allocate().value();
    s.run({{"pos", 0}}).value();
    Session other = std::move(s);
    other.run({{"pos", 1}}).value();
  }
}

TEST_CASE("threads compile and run graphs of their own at once") {
  std::vector<std::thread> threads;
  std::vector<float> found(8, 0);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&found, i] {
      GraphBuilder g("g" + std::to_string(i % 2), 2);
      g.output("y", g.allreduce(g.mul(g.input("x", f32, {4}), 1 + i % 2)));
      Session s = open(g.build().value());
      s.allocate().value();
      const std::array<float, 4> x = {1, 2, 3, static_cast<float>(i)};
      for (int rank = 0; rank < 2; ++rank) s.write(rank, "x", x.data(), 16).value();
      for (int launch = 0; launch < 3; ++launch) s.run().value();
      std::array<float, 4> y;
      s.read(1, "y", y.data(), 16).value();
      found[static_cast<size_t>(i)] = y[3];
    });
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < 8; ++i)
    CHECK(found[static_cast<size_t>(i)] == static_cast<float>(2 * i * (1 + i % 2)));
}

TEST_CASE("what is handed over has as many rows as memory says") {
  const Graph graph = Graph::parse(
                          "graph g(world = 2) {\n  dim n <= 5\n  input x : f32[n, 3]\n"
                          "  output y = allreduce(x, algorithm = nccl)\n}\n",
                          "h.maco")
                          .value();
  Session s = Session::open(compile(graph, cpu()).value(), on_cpu()).value();
  s.allocate().value();
  std::vector<float> x(15, 1.5f), y(15);
  for (int rank : {0, 1}) s.write(rank, "x", x.data(), 60).value();
  for (int32_t n : {2, 5, 1}) {
    const std::vector<const int32_t*> at = {&n, &n};
    for (int rank : {0, 1}) {
      std::fill(y.begin(), y.end(), -1.0f);
      s.write(rank, "y", y.data(), 60).value();
    }
    s.run({{"n", at}}).value();
    for (int rank : {0, 1}) {
      s.read(rank, "y", y.data(), 60).value();
      for (int i = 0; i < 15; ++i) CHECK(y[static_cast<size_t>(i)] == (i < 3 * n ? 3.0f : -1.0f));
    }
  }
}

}  // namespace
}  // namespace maco::test
