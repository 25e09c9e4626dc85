// canonicalize and fuse: what becomes one op, what must not, and that the result is a graph that
// infers.
#include "compiler/cost/machine.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ops/op.h"
#include "compiler/passes/passes.h"
#include "tests/catch.h"

using namespace maco;

namespace {

struct Outcome {
  ir::Graph graph;
  std::string messages;
  size_t ops() const { return graph.ops.size(); }
  // Kind and body of the op that writes `tensor` last.
  std::string made(const std::string& tensor) const {
    for (size_t i = graph.ops.size(); i-- > 0;)
      for (ir::TensorId t : graph.ops[i].out)
        if (graph[t].name == tensor) {
          const ir::Op& op = graph.ops[i];
          std::string text = op.kind;
          for (const char* attr : {"body", "epilogue"})
            if (op.attrs.count(attr)) text += ": " + std::get<std::string>(op.attrs.at(attr).value);
          return text;
        }
    return "";
  }
  std::string inputs(const std::string& tensor) const {
    std::string names;
    for (const ir::Op& op : graph.ops)
      if (graph[op.out[0]].name == tensor) {
        names.clear();
        for (ir::TensorId t : op.in) names += (names.empty() ? "" : " ") + graph[t].name;
      }
    return names;
  }
};

Outcome passed(const std::string& text, bool fuse = true) {
  ir::Diagnostics d;
  const int32_t file = d.add_file("g.maco", "graph g {\n" + text + "\n}\n");
  auto graph = frontend::parse_dsl(file, d);
  INFO(d.render());
  REQUIRE(graph);
  passes::PassContext context{d, *cost::find_machine("cpu")};
  REQUIRE(passes::canonicalize(*graph, context));
  if (fuse) REQUIRE(passes::fuse(*graph, context));
  // Its text says all of it.
  frontend::BuildOptions options;
  options.open_outputs = options.internal_ops = true;
  const auto raw = frontend::parse_dsl_raw(d.add_file("printed", frontend::print_dsl(*graph)), d);
  REQUIRE(raw);
  const auto read_back = frontend::build(*raw, options, d);
  REQUIRE(read_back);
  CHECK(*read_back == *graph);
  ir::Graph again = *graph;
  REQUIRE(ops::infer(again, d));
  for (size_t i = 0; i < again.tensors.size(); ++i) {
    CHECK(again.tensors[i].dtype == graph->tensors[i].dtype);
    CHECK(again.tensors[i].shape == graph->tensors[i].shape);
  }
  return {*graph, d.render()};
}

const std::string kInputs =
    "input x : bf16[8, 64]\ninput u : bf16[8, 64]\nparam w : bf16[64, 64]\nparam b : "
    "f32[64]\nstate s : bf16[8, 64]\n";

}  // namespace

TEST_CASE("a chain of elementwise ops is one op, rounded where it had names") {
  const Outcome o = passed(
      kInputs +
      "h = add(x, b)\na = silu(h)\nm = mul(a, h)\noutput y = mul(m, value = 0.5, dtype = f32)");
  CHECK(o.ops() == 1);
  CHECK(o.made("y") ==
        "fused: t0 = add(%0, %1) : bf16; t1 = silu(t0) : bf16; t2 = mul(t1, t0) : bf16; t3 = "
        "mul(t2, value=0.5) : f32");
  CHECK(o.inputs("y") == "x b");
}

TEST_CASE("what others read, or is declared, stays in memory") {
  const Outcome o = passed(kInputs + "h = relu(x)\noutput y = exp(h)\noutput z = matmul(h, w)");
  CHECK(o.ops() == 3);
  const Outcome p = passed(kInputs + "output y = relu(x)\noutput z = exp(y)");
  CHECK(p.ops() == 2);
  // An op of another shape isn't fused: a bias is computed once for all rows.
  CHECK(passed(kInputs + "c = relu(b)\noutput y = add(x, c)").ops() == 2);
}

TEST_CASE("elementwise ops behind a matmul become its epilogue") {
  const Outcome o =
      passed(kInputs + "p = matmul(x, w, activation = relu)\nh = add(p, b)\noutput y = add(h, x)");
  CHECK(o.ops() == 1);
  CHECK(o.made("y") ==
        "matmul: t0 = copy(%0) : bf16; t1 = add(t0, %1) : bf16; t2 = add(t1, %2) : bf16");
  CHECK(o.inputs("y") == "x w b x");
  // The other matmul's result is not there when this one starts.
  const Outcome gated =
      passed(kInputs + "g = matmul(x, w)\nv = matmul(u, w)\noutput y = swiglu(g, v)");
  CHECK(gated.ops() == 3);
  // A residual that the matmul depends on is.
  const Outcome residual = passed(
      kInputs + "h = rmsnorm(x, b)\nr = matmul(h, w)\nq = matmul(r, w)\noutput y = add(q, h)");
  CHECK(residual.ops() == 3);
  CHECK(residual.inputs("y") == "r w h");
}

TEST_CASE("comparisons and choices fuse like the others") {
  const Outcome o =
      passed(kInputs + "m = gt(x, value = 0)\nh = sqrt(x)\noutput y = where(m, h, u)");
  CHECK(o.ops() == 1);
  CHECK(o.made("y") ==
        "fused: t0 = gt(%0, value=0) : u8; t1 = sqrt(%0) : bf16; t2 = where(t0, t1, %1) : bf16");
  const Outcome p = passed(
      kInputs + "p = matmul(x, w)\nm = lt(p, value = 0)\noutput y = where(m, p, value = -1)");
  CHECK(p.ops() == 1);
  CHECK(p.made("y") ==
        "matmul: t0 = copy(%0) : bf16; t1 = lt(t0, value=0) : u8; "
        "t2 = where(t1, t0, value=-1) : bf16");
  const Outcome q =
      passed(kInputs + "p = matmul(x, w)\nd = div(p, b)\noutput y = clamp(d, min = 0)");
  CHECK(q.ops() == 1);
  CHECK(q.made("y") ==
        "matmul: t0 = copy(%0) : bf16; t1 = div(t0, %1) : bf16; t2 = maximum(t1, value=0) : bf16");
}

TEST_CASE("a state's value is the one at the place of reading") {
  // 'old' must be computed before s changes.
  const Outcome o = passed(kInputs + "old = relu(s)\ns = copy(x)\noutput y = add(old, u)");
  CHECK(o.ops() == 3);
  // In place, element by element.
  const Outcome p = passed(kInputs + "h = relu(s)\ns = add(h, s)");
  CHECK(p.ops() == 1);
  CHECK(p.made("s") == "fused: t0 = relu(%0) : bf16; t1 = add(t0, %0) : bf16");
  // The matmul's tiles read what others would have written.
  const Outcome q = passed(kInputs + "h = matmul(s, w)\ns = add(h, x)");
  CHECK(q.ops() == 2);
}

TEST_CASE("ops that read the state they write get a temporary") {
  const Outcome o = passed(kInputs + "s = matmul(s, w)", false);
  REQUIRE(o.ops() == 2);
  CHECK(o.graph.ops[0].kind == "matmul");
  CHECK(o.graph.ops[0].name == "s.value");
  CHECK(o.graph.ops[1].kind == "copy");
  CHECK(o.graph.ops[1].name == "s");
  CHECK(passed(kInputs + "s = add(s, x)", false).ops() == 1);
  CHECK(passed(kInputs + "s = kv_append(s, x, at = 0)", false).ops() == 1);
  const Outcome p = passed(kInputs + "s = kv_append(s, s, at = 0)", false);
  REQUIRE(p.ops() == 2);
  CHECK(p.graph.ops[0].kind == "copy");
  CHECK(p.inputs("s") == "s s.value");
}

TEST_CASE("constraints keep ops apart") {
  const auto ops = [&](const std::string& first, const std::string& second,
                       const std::string& rest = "") {
    return passed(kInputs + "h = relu(x" + first + ")\noutput y = exp(h" + second + ")\n" + rest)
        .ops();
  };
  CHECK(ops("", "") == 1);
  CHECK(ops(", priority = high", "") == 2);
  CHECK(ops(", priority = high", ", priority = high") == 1);
  CHECK(ops("", "", "output z = relu(u, after = [\"h\"])") == 3);
  CHECK(ops("", "", "output z = relu(u, after = [\"y\"])") == 2);
  CHECK(ops(", phase = \"a\"", "", "phase a") == 2);
  CHECK(ops(", phase = \"a\"", ", phase = \"a\"", "phase a") == 1);
  CHECK(passed(kInputs + "h = relu(x)\nbarrier()\noutput y = exp(h)").ops() == 3);
}

TEST_CASE("copies that nobody needs and results that nobody uses are left out") {
  const Outcome o =
      passed(kInputs + "p = matmul(x, w)\noutput y = allreduce(p, reduce = sum)", false);
  CHECK(o.ops() == 1);
  CHECK(o.made("y") == "matmul");
  const Outcome p = passed(kInputs + "c = copy(x)\noutput y = matmul(c, w)", false);
  CHECK(p.ops() == 1);
  CHECK(p.inputs("y") == "x w");
  const Outcome q =
      passed(kInputs + "old = copy(s)\ns = relu(x)\noutput y = matmul(old, w)", false);
  CHECK(q.ops() == 3);
  const Outcome unused = passed(kInputs + "a = relu(x)\nb2 = exp(a)\noutput y = relu(u)", false);
  CHECK(unused.ops() == 1);
  CHECK_THAT(unused.messages,
             Catch::Matchers::Contains("nothing uses the result of 'b2'; it is left out"));
  CHECK(unused.graph.find_tensor("a") == std::nullopt);
}
