// Texts to graphs to texts, through everything: both spellings of one graph are equal, printing is
// canonical and loses nothing.
#include <fmt/format.h>

#include <random>

#include "compiler/frontend/frontend.h"
#include "tests/catch.h"

using namespace maco;

namespace {

ir::Graph parse(const std::string& text) {
  ir::Diagnostics d;
  auto graph = frontend::parse_graph(d.add_file("g", text), d);
  INFO(text << "\n" << d.render());
  REQUIRE(graph);
  return std::move(*graph);
}

/// Prints in both spellings, reads both back, and prints again.
void check_spellings(const std::string& text) {
  const ir::Graph g = parse(text);
  const std::string dsl = frontend::print_dsl(g), json = frontend::print_json(g);
  INFO(dsl << json);
  const ir::Graph from_dsl = parse(dsl), from_json = parse(json);
  CHECK(from_dsl == g);
  CHECK(from_json == g);
  CHECK(frontend::print_dsl(from_dsl) == dsl);
  CHECK(frontend::print_dsl(from_json) == dsl);
  CHECK(frontend::print_json(from_json) == json);
}

/// A graph of square tensors that uses whatever the language has.
class RandomText {
 public:
  explicit RandomText(uint64_t seed) : rng_(seed) {}

  std::string make() {
    std::string out = fmt::format("graph g{} {{\n", flip() ? "(world = 2)" : "");
    const bool two = out.find('2') != std::string::npos;
    if (flip()) out += flip() ? "  dim tokens <= 16\n" : "  dim 2 <= tokens <= 8 * 2\n";
    const bool dims = out.find("dim") != std::string::npos;
    const bool dynamic = flip();
    out +=
        "  scalar pos in [0, 4)\n  input x : f32[8, 8]\n  param w : f32[8, 8 * world / world]\n  "
        "state s : f32[8, 8]\n";
    if (dynamic) out += "  set schedule = dynamic\n";
    if (flip())
      out += fmt::format("  set overlap = {}\n", pick({"none", "conservative", "aggressive"}));
    if (flip()) out += fmt::format("  set backend = {}\n", pick({"p2p", "nccl", "nvshmem"}));
    if (flip()) out += fmt::format("  set comm_buffer_bytes = {}\n", rng_() % 1'000'000'000);
    const std::string counts =
        dynamic ? "{compute: 5, comm: 2, scheduler: 1}" : "{compute: 6, comm: 2}";
    if (flip())
      out += "  set sm_roles = " +
             (dims && flip()
                  ? fmt::format(
                        "{{when: [{{if: tokens <= 4 && pos > 0, roles: {}}}, {{else: auto}}]}}",
                        counts)
              : flip() ? counts
                       : "[{sms: [0, 6], role: compute}, {sms: [6, 8], role: comm, tasks: "
                         "[allreduce, recv, send]}]") +
             "\n";
    const bool phases = flip();
    if (phases) out += "  phase first\n  phase second depends_on first\n";
    live_ = {"x", "w"};
    const int ops = 2 + static_cast<int>(rng_() % 6);
    for (int i = 0; i < ops; ++i) out += "  " + op(i, two, phases && i > 0) + "\n";
    if (flip())
      out +=
          "  repeat i in 0..3 {\n    r_{i} = add(x, w)\n    q_{i + 1} = relu(r_{i}, after = "
          "[r_{i}])\n  }\n";
    if (dims) out += "  input t : f32[tokens, 8]\n  output u = relu(t)\n";
    out += fmt::format("  output y{} = relu({})\n", flip() ? " : f16[8, 8]" : "", pick(live_));
    if (flip()) out += "  region both = [t0, t1]\n";
    return out + "}\n";
  }

 private:
  bool flip() { return (rng_() & 1) != 0; }
  template <class T>
  std::string pick(const std::vector<T>& items) {
    return std::string(items[rng_() % items.size()]);
  }
  std::string pick(std::initializer_list<const char*> items) {
    return pick(std::vector<const char*>(items));
  }

  std::string op(int i, bool two, bool in_phase) {
    const std::string a = pick(live_), b = pick(live_), name = "t" + std::to_string(i);
    std::string call;
    switch (rng_() % 7) {
      case 0:
        call = fmt::format("matmul({}, {}, transpose_b = {}, activation = {}", a, b, flip(),
                           pick({"none", "gelu", "relu"}));
        break;
      case 1:
        call = fmt::format("add({}, value = {}", a, pick({"1", "0.5", "1e-5", "-3", "2.5e+20"}));
        break;
      case 2: call = fmt::format("mul({}, {}", a, b); break;
      case 3:
        call = fmt::format("allreduce({}, reduce = {}", a, pick({"sum", "max", "avg"}));
        break;
      case 4: call = fmt::format("gelu({}, approximate = tanh", a); break;
      case 5: call = fmt::format("maximum({}, {}", a, b); break;
      default:
        call = two ? fmt::format("ring_shift({}, by = world - 1", a) : fmt::format("tanh({}", a);
        break;
    }
    if (flip()) call += fmt::format(", priority = {}", pick({"low", "normal", "high"}));
    if (i > 1 && flip()) call += ", after = [t0, t1]";
    if (flip()) call += ", dtype = f32";
    if (flip()) call += fmt::format(", overlap = {}", pick({"none", "conservative"}));
    if (in_phase) call += fmt::format(", phase = \"{}\"", i < 3 ? "first" : "second");
    live_.push_back(name);
    // The name of its output: regions and 'after' above mean it.
    return fmt::format("{} = {}){}", name, call, flip() ? " @" + name : "");
  }

  std::mt19937_64 rng_;
  std::vector<std::string> live_;
};

}  // namespace

TEST_CASE("the example means the same in both spellings", "[spellings]") {
  const ir::Graph dsl = parse(R"(graph tp_mlp(world = 2) {
  input  x  : bf16[64, 1024]
  param  w1 : bf16[2048, 1024]
  param  w2 : bf16[1024, 2048]
  h = matmul(x, w1, transpose_b = true)
  a = silu(h)
  p = matmul(a, w2, transpose_b = true) @down
  output y = allreduce(p, reduce = sum, overlap_group = "mlp")
})");
  const ir::Graph json = parse(R"({"maco": 1, "name": "tp_mlp", "world": 2, "dims": {}, "tensors": {
    "x":  {"kind": "input",  "dtype": "bf16", "shape": [64, 1024]},
    "w1": {"kind": "param",  "dtype": "bf16", "shape": [2048, 1024]},
    "w2": {"kind": "param",  "dtype": "bf16", "shape": [1024, 2048]},
    "y":  {"kind": "output", "dtype": "bf16", "shape": [64, 1024]}},
  "ops": [
    {"op": "matmul", "in": ["x", "w1"], "out": "h", "transpose_b": true},
    {"op": "silu", "in": ["h"], "out": "a"},
    {"op": "matmul", "in": ["a", "w2"], "out": "p", "transpose_b": true, "name": "down"},
    {"op": "allreduce", "in": ["p"], "out": "y", "reduce": "sum", "overlap_group": "mlp"}],
  "sm_roles": "auto", "overlap": "aggressive"})");
  CHECK(dsl == json);
  CHECK(frontend::print_dsl(dsl) == frontend::print_dsl(json));
  CHECK(frontend::print_json(dsl) == frontend::print_json(json));
  check_spellings(frontend::print_dsl(dsl));
}

TEST_CASE("whatever the language has survives both spellings", "[spellings]") {
  check_spellings(R"(graph all(world = 4) {
  dim tokens <= 64
  scalar pos in [0, 4033)
  input  x   : bf16[tokens, 512]
  input  ids : i32[tokens]
  param  table : bf16[1000, 512]
  param  wq : bf16[512, 512]
  param  norm : bf16[512]
  state  k : bf16[4096, 512]
  set sm_roles = {when: [{if: tokens <= 16, roles: {compute: 4, comm: 2}}, {else: {compute: 6, comm: 2}}]}
  set overlap = conservative
  set comm_buffer_bytes = 1048576
  phase qkv
  phase out depends_on qkv
  e = embedding(table, ids)
  sum0 = add(x, e)
  n = rmsnorm(sum0, norm, eps = 1e-5)
  q = matmul(n, wq, transpose_b = true, phase = "qkv", priority = high)
  r = rope(q, head_dim = 64, position = pos, scaling = {factor: 8, low_freq_factor: 1, high_freq_factor: 4.0, original_max_position: 8192}, phase = "qkv")
  k = kv_append(k, r, at = pos)
  o = attention(r, k, k, head_dim = 64, causal = true, length = pos + tokens)
  m = relu(o, phase = "out", overlap = none)
  barrier()
  output y = allreduce(m, reduce = sum, algorithm = twoshot, overlap_group = "mlp") @reduce
  output big : f32[tokens * world, 512] = allgather(m, dtype = f32)
  l, h = split(n, axis = 1)
  output t = transpose(wq, perm = [1, 0])
  output c : f8e4m3[512, 512] = cast(wq, dtype = f8e4m3)
  region r1 = [l, t]
})");
}

TEST_CASE("a pipeline survives both spellings", "[spellings]") {
  check_spellings(R"(graph p(world = 2) {
  input x : f32[64, 64]
  param w : f32[64, 64]
  a = matmul(x, w)
  b = allreduce(a, reduce = sum)
  output y : f32[64, 64] = relu(b)
  pipeline [[a], [b], [y]] microbatches 4
})");
}

TEST_CASE("names that look like words of the language survive", "[spellings]") {
  check_spellings(R"(graph graph {
  scalar in in [0, 5)
  input input : f32[4, 4]
  state state : f32[4, 4]
  set = relu(input) @repeat
  phase = relu(set, after = [repeat])
  output output = add(phase, state) @dim
  region region = [repeat, phase]
})");
}

TEST_CASE("repeats unroll to the same graph in both spellings", "[spellings]") {
  const ir::Graph dsl = parse(R"(graph g {
  input x_0 : f32[4, 4]
  repeat i in 0..3 {
    param w_{i} : f32[4, {i * 0 + 4}]
    x_{i + 1} = add(x_{i}, w_{i}) @step.{i}
    repeat j in 0..{i} { output z_{i}_{j} : f32[4, 4] = relu(x_{j}) }
  }
  output y = relu(x_3)
})");
  const ir::Graph json = parse(R"({"maco": 1, "name": "g", "tensors": {
    "x_0": {"kind": "input", "dtype": "f32", "shape": [4, 4]}, "y": {"kind": "output", "dtype": "f32", "shape": [4, 4]}},
  "ops": [
    {"repeat": "i", "from": 0, "to": 3,
     "tensors": {"w_{i}": {"kind": "param", "dtype": "f32", "shape": [4, "{i * 0 + 4}"]}},
     "ops": [{"op": "add", "in": ["x_{i}", "w_{i}"], "out": "x_{i+1}", "name": "step.{i}"},
             {"repeat": "j", "from": 0, "to": "i", "tensors": {"z_{i}_{j}": {"kind": "output", "dtype": "f32", "shape": [4, 4]}},
              "ops": [{"op": "relu", "in": ["x_{j}"], "out": "z_{i}_{j}"}]}]},
    {"op": "relu", "in": ["x_3"], "out": "y"}]})");
  CHECK(dsl == json);
  check_spellings(frontend::print_json(json));
}

TEST_CASE("random graphs survive both spellings", "[spellings]") {
  int good = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::string text = RandomText(seed).make();
    ir::Diagnostics d;
    if (!frontend::parse_graph(d.add_file("g", text), d)) {
      // Not all of them are valid (an 'after' against the phases); what is refused says why.
      CHECK(d.has_errors());
      continue;
    }
    ++good;
    check_spellings(text);
  }
  CHECK(good > 200);
}

TEST_CASE("errors of meaning stand at their place in the DSL", "[spellings]") {
  ir::Diagnostics d;
  const auto graph = frontend::parse_graph(d.add_file("g.maco", R"(graph g {
  input x : f32[4, 4]
  y = relux(x)
  z = add(x, w)
  u = relu(x, eps = 1)
  repeat i in 0..2 {
    q_{i} = relu(v_{i})
  }
  output o = matmul(x)
}
)"),
                                           d);
  CHECK_FALSE(graph);
  const std::string text = d.render();
  INFO(text);
  CHECK(text.find("g.maco:3:7: error: unknown op 'relux'; did you mean 'relu'?") !=
        std::string::npos);
  CHECK(text.find("g.maco:4:14: error: 'w' is not defined") != std::string::npos);
  CHECK(text.find("g.maco:5:15: error: 'relu' has no attribute 'eps'") != std::string::npos);
  CHECK(text.find("g.maco:7:18: error: 'v_0' is not defined") != std::string::npos);
  CHECK(text.find("= in iteration i = 0") != std::string::npos);
  CHECK(text.find("g.maco:9:20: error: 'matmul' takes 2 or 3 inputs, found 1") !=
        std::string::npos);
}
