// What good documents become. What bad ones are told: diagnostics_corpus_test.cpp.
#include "compiler/frontend/frontend.h"
#include "tests/catch.h"

using namespace maco;

namespace {

ir::Graph graph(const std::string& text) {
  ir::Diagnostics d;
  auto g = frontend::parse_json(d.add_file("t.json", text), d);
  INFO(d.render());
  REQUIRE(g);
  REQUIRE(d.all().empty());
  return *g;
}

/// A graph of world 2 with an input x, an output y and a state s of the same shape, and these ops
/// and keys.
ir::Graph small(const std::string& ops, const std::string& keys = "",
                const std::string& tensors = "") {
  return graph(
      R"({"maco": 1, "name": "g", "world": 2, "dims": {"tokens": {"max": 64, "min": 4}}, "tensors": {
    "x": {"kind": "input", "dtype": "f32", "shape": [8, 16]}, "s": {"kind": "state", "dtype": "f32", "shape": [8, 16]},
    "pos": {"kind": "scalar", "range": [0, 8]}, "y": {"kind": "output", "dtype": "f32", "shape": [8, 16]})" +
      tensors + R"(}, "ops": [)" + ops + "]" + keys + "}");
}

std::vector<std::string> op_names(const ir::Graph& g) {
  std::vector<std::string> names;
  for (const ir::Op& op : g.ops) names.push_back(op.name);
  return names;
}

const std::string kRelu = R"({"op": "relu", "in": ["x"], "out": "y"})";

}  // namespace

TEST_CASE("build: the example of graph-format.md") {
  const ir::Graph g = graph(R"({
    "maco": 1, "name": "tp_mlp", "world": 2, "dims": {},
    "tensors": {
      "x":  {"kind": "input",  "dtype": "bf16", "shape": [64, 1024]},
      "w1": {"kind": "param",  "dtype": "bf16", "shape": [2048, 1024]},
      "w2": {"kind": "param",  "dtype": "bf16", "shape": [1024, 2048]},
      "y":  {"kind": "output", "dtype": "bf16", "shape": [64, 1024]}
    },
    "ops": [
      {"op": "matmul", "in": ["x", "w1"], "out": "h", "transpose_b": true},
      {"op": "silu", "in": ["h"], "out": "a"},
      {"op": "matmul", "in": ["a", "w2"], "out": "p", "transpose_b": true, "name": "down"},
      {"op": "allreduce", "in": ["p"], "out": "y", "reduce": "sum", "overlap_group": "mlp"}
    ],
    "sm_roles": "auto", "overlap": "aggressive"
  })");
  CHECK((g.name == "tp_mlp" && g.world == 2 && g.tensors.size() == 7));
  CHECK(op_names(g) == std::vector<std::string>{"h", "a", "down", "y"});
  CHECK((g.ops[2].named && !g.ops[0].named));
  CHECK(std::get<bool>(g.ops[0].attrs.at("transpose_b").value));
  CHECK(std::get<std::string>(g.ops[3].attrs.at("reduce").value) == "sum");
  CHECK(g.ops[3].overlap_group == "mlp");
  const ir::Tensor& h = g[*g.find_tensor("h")];
  CHECK((h.kind == ir::TensorKind::Temp && h.dtype == ir::DType::BF16 &&
         h.shape == ir::Shape{64, 2048}));
  CHECK((g.ops[0].loc.line == 10 && g.ops[0].in_loc[1].column == 36 &&
         g.ops[0].out_loc.column == 50));
}

TEST_CASE("build: world is 1 if absent") {
  CHECK(graph(R"({"maco": 1, "name": "g", "tensors": {}, "ops": []})").world == 1);
}

TEST_CASE("build: ops that aren't named are called by their output, or their kind and a number") {
  const ir::Graph g = small(R"(
    {"op": "barrier"}, {"op": "copy", "in": ["x"], "out": "s"}, {"op": "barrier"},
    {"op": "copy", "in": ["x"], "out": "s"}, {"op": "copy", "in": ["s"], "out": ["y"]},
    {"op": "copy", "in": ["x"], "out": "s"}, {"op": "copy", "in": ["x"], "out": "t", "name": "s_2"})");
  CHECK(op_names(g) ==
        std::vector<std::string>{"barrier_1", "s", "barrier_2", "s_3", "y", "s_4", "s_2"});
}

TEST_CASE("build: common keys") {
  const ir::Graph g = small(R"(
    {"op": "relu", "in": ["x"], "out": "a", "dtype": "bf16", "phase": "p"},
    {"op": "relu", "in": ["a"], "out": "y", "dtype": "f32", "after": ["a"], "overlap": "none", "priority": "high"})",
                            R"(, "phases": [{"name": "p"}, {"name": "q", "depends_on": ["p"]}])");
  CHECK(g.ops[0].dtype == ir::DType::BF16);
  CHECK(g[*g.find_tensor("a")].dtype == ir::DType::BF16);
  CHECK((g.ops[0].phase == "p" && g.ops[1].after == std::vector<std::string>{"a"}));
  CHECK((g.ops[1].overlap == ir::Overlap::None && g.ops[1].priority == ir::Priority::High));
  CHECK((g.ops[0].priority == ir::Priority::Normal && !g.ops[0].overlap));
  CHECK(g.phases[1].depends_on == std::vector<std::string>{"p"});
}

TEST_CASE("build: expressions over dims and scalars") {
  const ir::Graph g = small(
      kRelu +
          R"(, {"op": "kv_append", "in": ["cache", "k"], "out": "cache", "at": "pos * 8 + rank - rank"})",
      "",
      R"(, "cache": {"kind": "state", "dtype": "f32", "shape": ["world * 64", "32 / world"]},
                                "k": {"kind": "input", "dtype": "f32", "shape": ["tokens", 16]})");
  CHECK(g.dims[0] == ir::Dim{"tokens", 4, 64, {}});
  CHECK(std::get<ir::Expr>(g.ops[1].attrs.at("at").value).str() == "pos * 8 + rank - rank");
  CHECK(g[*g.find_tensor("cache")].shape == ir::Shape{128, 16});
  const ir::Tensor& pos = g[*g.find_tensor("pos")];
  CHECK((pos.kind == ir::TensorKind::Scalar && pos.dtype == ir::DType::I32 && pos.range_lo == 0 &&
         pos.range_hi == 8));
}

TEST_CASE("build: graph-level keys") {
  const ir::Graph g = small(
      kRelu,
      R"(, "schedule": "dynamic", "overlap": "conservative", "backend": "nccl", "comm_buffer_bytes": 4096,
    "overlap_regions": [{"name": "r", "ops": ["y"]}], "pipeline": {"stages": [["y"]], "microbatches": 4})");
  CHECK((g.schedule == ir::Schedule::Dynamic && g.overlap == ir::Overlap::Conservative &&
         g.backend == ir::Backend::Nccl));
  CHECK((g.comm_buffer_bytes == 4096 && g.overlap_regions[0].ops == std::vector<std::string>{"y"}));
  CHECK((g.pipeline->stages.size() == 1 && g.pipeline->microbatches == 4));
  CHECK(g.key_loc.at("schedule").known());
}

TEST_CASE("build: forms of sm_roles") {
  const auto roles = [](const std::string& text) {
    return small(kRelu, R"(, "schedule": "dynamic", "sm_roles": )" + text).sm_roles.value;
  };
  const auto counts = [](const ir::Roles& r) { return std::get<ir::RoleCounts>(r); };
  CHECK(std::holds_alternative<ir::RoleAuto>(std::get<ir::Roles>(roles("\"auto\""))));
  const ir::RoleCounts c{96, 32, 4};
  CHECK(counts(std::get<ir::Roles>(roles(R"({"compute": 96, "comm": 32, "scheduler": 4})"))) == c);
  CHECK(counts(std::get<ir::Roles>(roles(
            R"({"num_workers": 96, "num_remote_schedulers": 32, "num_local_schedulers": 4})"))) ==
        c);
  const auto ranges = std::get<std::vector<ir::RoleRange>>(std::get<ir::Roles>(roles(
      R"([{"sms": [0, 96], "role": "compute", "tasks": ["relu"]}, {"sms": [96, 132], "role": "comm"}])")));
  CHECK(ranges ==
        std::vector<ir::RoleRange>{{0, 96, "compute", {"relu"}, {}}, {96, 132, "comm", {}, {}}});
  const auto variants = std::get<std::vector<ir::RoleVariant>>(roles(
      R"({"when": [{"if": "tokens <= 16 && pos > 2", "roles": {"comm": 8}}, {"else": "auto"}]})"));
  REQUIRE(variants.size() == 2);
  CHECK(variants[0].condition->str() == "tokens <= 16 && pos > 2");
  CHECK(counts(variants[0].roles).comm == 8);
  CHECK((!variants[1].condition && std::holds_alternative<ir::RoleAuto>(variants[1].roles)));
}

TEST_CASE("build: repeat unrolls, nested ones too") {
  const ir::Graph g = small(R"(
    {"op": "relu", "in": ["x"], "out": "h_0_0"},
    {"repeat": "i", "from": 0, "to": "world", "tensors": {"w_{i}": {"kind": "param", "dtype": "f32", "shape": ["{8 + 0 * i}", 16]}}, "ops": [
      {"repeat": "j", "from": "i - i", "to": "{i} + 1", "ops": [
        {"op": "add", "in": ["h_{i}_{j}", "w_{i}"], "out": "h_{i}_{j + 1}", "name": "add.{i}.{j}"}
      ]},
      {"op": "mul", "in": ["h_{i}_{i + 1}"], "out": "h_{i + 1}_0", "value": "{i + 2}"}
    ]},
    {"op": "relu", "in": ["h_2_0"], "out": "y"})");
  CHECK(op_names(g) ==
        std::vector<std::string>{"h_0_0", "add.0.0", "h_1_0", "add.1.0", "add.1.1", "h_2_0", "y"});
  CHECK(std::get<ir::Expr>(g.ops[5].attrs.at("value").value).constant() == 3);
  CHECK((g.ops[1].loc.context >= 0 && g.ops[0].loc.context < 0));
  CHECK(g.ops[3].loc.context != g.ops[4].loc.context);
}

TEST_CASE("build: an empty repeat makes nothing") {
  CHECK(
      small(
          kRelu +
          R"(, {"repeat": "i", "from": 3, "to": 3, "ops": [{"op": "relu", "in": ["nothing"], "out": "z"}]})")
          .ops.size() == 1);
}

TEST_CASE("build: what only passes make is read back where that is wanted") {
  const std::string text =
      R"({"maco": 1, "name": "g", "tensors": {}, "ops": [{"op": "fused", "out": "y"}]})";
  ir::Diagnostics d;
  const auto raw = frontend::parse_json_raw(d.add_file("t.json", text), d);
  REQUIRE(raw);
  CHECK_FALSE(frontend::build(*raw, {}, d));
  CHECK(d.all()[0].message.find("unknown op 'fused'") == 0);
}

TEST_CASE("build: an output without a type takes that of its op, where that is allowed") {
  const std::string text =
      R"({"maco": 1, "name": "g", "tensors": {"x": {"kind": "input", "dtype": "bf16", "shape": [4, 8]},
    "y": {"kind": "output"}}, "ops": [{"op": "relu", "in": ["x"], "out": "y"}]})";
  ir::Diagnostics d;
  const auto raw = frontend::parse_json_raw(d.add_file("t.json", text), d);
  REQUIRE(raw);
  CHECK_FALSE(frontend::build(*raw, {}, d));
  d.clear();
  const auto g = frontend::build(*raw, {.open_outputs = true}, d);
  INFO(d.render());
  REQUIRE(g);
  CHECK((g->tensors[1].dtype == ir::DType::BF16 && g->tensors[1].shape == ir::Shape{4, 8}));
}

TEST_CASE("build: after may name a later op if that makes no cycle") {
  CHECK(
      small(
          R"({"op": "relu", "in": ["x"], "out": "a", "after": ["b"]}, {"op": "relu", "in": ["x"], "out": "b"},
                 {"op": "add", "in": ["a", "b"], "out": "y"})")
          .ops.size() == 3);
}

TEST_CASE("build: what depends on an error is not reported, and everything else is") {
  ir::Diagnostics d;
  const std::string text =
      R"({"maco": 1, "name": "g", "tensors": {"y": {"kind": "output", "dtype": "f32", "shape": [4]}}, "ops": [
    {"op": "relu", "in": ["missing"], "out": "a"}, {"op": "matmul", "in": ["a", "a"], "out": "b"}, {"op": "relu", "in": ["b"], "out": "y"},
    {"op": "relu", "in": ["absent"], "out": "c"}]})";
  CHECK_FALSE(frontend::parse_json(d.add_file("t.json", text), d));
  REQUIRE(d.all().size() == 2);
  CHECK(d.all()[0].message == "'missing' is not defined");
  CHECK(d.all()[1].message == "'absent' is not defined");
}

TEST_CASE("build: ranks that an op's 'if' leaves out don't evaluate its other attributes") {
  const auto divides_by_zero = [](const std::string& condition) {
    ir::Diagnostics d;
    const std::string text =
        R"({"maco": 1, "name": "g", "world": 4, "tensors": {"x": {"kind": "input", "dtype": "f32", "shape": [4]}},
      "ops": [{"op": "send", "in": ["x"], "dst": "3 / rank", "if": ")" +
        condition + R"("}]})";
    frontend::parse_json(d.add_file("t.json", text), d);
    for (const ir::Diagnostic& x : d.all())
      if (x.message == "division by zero in '3 / rank' on rank 0") return true;
    return false;
  };
  CHECK_FALSE(divides_by_zero("rank > 0"));
  CHECK(divides_by_zero("rank < 2"));
}
