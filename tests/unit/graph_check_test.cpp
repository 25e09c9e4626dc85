// What is wrong with a graph is found on ir::Graph, whoever built it: graphs built by hand, with
// one fault each.
#include "compiler/graph/check.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "compiler/graph/complete.h"
#include "tests/catch.h"
#include "tests/paths.h"
#include "tests/unit/random_graph.h"

namespace maco::test {
namespace {

using ir::Expr;
using ir::Graph;
using ir::Op;
using ir::TensorId;
using ir::TensorKind;

TensorId add(Graph& g, const std::string& name, TensorKind kind, ir::Shape shape,
             ir::DType dtype = ir::DType::F32) {
  ir::Tensor t;
  t.name = name;
  t.kind = kind;
  t.dtype = dtype;
  t.shape = std::move(shape);
  g.tensors.push_back(std::move(t));
  return ir::id_of<TensorId>(g.tensors.size() - 1);
}

Op& add_op(Graph& g, const std::string& kind, std::vector<TensorId> in, std::vector<TensorId> out) {
  Op op;
  op.kind = kind;
  op.in = std::move(in);
  op.out = std::move(out);
  g.ops.push_back(std::move(op));
  return g.ops.back();
}

// The tensors of good(), in its order.
enum : uint32_t { kX, kW, kCache, kPos, kY, kH, kS, kTensors };

/// Two ranks: a product, an all-reduce, a product with 0.5, a state that grows, and a barrier.
Graph good() {
  Graph g;
  g.name = "made";
  g.world = 2;
  g.dims.push_back({"n", 2, 8, {}});
  const TensorId x = add(g, "x", TensorKind::Input, {Expr::var("n"), 16});
  const TensorId w = add(g, "w", TensorKind::Param, {16, 4 * Expr::var("world")});
  const TensorId cache = add(g, "cache", TensorKind::State, {32, 8});
  const TensorId pos = add(g, "pos", TensorKind::Scalar, {}, ir::DType::I32);
  g[pos].range_hi = 16;
  const TensorId y = add(g, "y", TensorKind::Output, {});
  const TensorId h = add(g, "h", TensorKind::Temp, {}), s = add(g, "s", TensorKind::Temp, {});
  add_op(g, "matmul", {x, w}, {h});
  add_op(g, "allreduce", {h}, {s}).attrs["reduce"] = {std::string("max"), {}};
  add_op(g, "mul", {s}, {y}).attrs["value"] = {0.5, {}};
  add_op(g, "kv_append", {cache, s}, {cache}).attrs["at"] = {Expr::var("pos"), {}};
  add_op(g, "barrier", {}, {});
  return g;
}

/// Compiles `g` and its text: the same graph, the same kernel.
void check_text_of(const Graph& g) {
  ir::Diagnostics d;
  api::Options options;
  options.target = "cpu";
  const auto made = api::compile(g, options, d);
  INFO(d.render());
  REQUIRE(made);
  const std::string text = frontend::print_dsl(made->graph);
  const auto graph = api::read_graph("text", text, d);
  INFO(text << d.render());
  REQUIRE(graph);
  CHECK(*graph == made->graph);
  const auto read = api::compile(*graph, options, d);
  REQUIRE(read);
  CHECK(read->kernel == made->kernel);
  CHECK(d.all().empty());
}

struct Fault {
  const char* says;
  std::function<void(Graph&)> make;
};

TEST_CASE("a graph built by hand compiles as its text does") {
  check_text_of(good());
  // A name that another op would get by its output; one that is given; none for an op without one.
  Graph names = good();
  names.ops[1].name = "h";
  names.ops[1].named = true;
  names.ops[2].name = "mine";
  names.ops[4].after = {"h"};
  check_text_of(names);
  // The order of tensors.
  Graph other = good();
  std::swap(other.tensors[kX], other.tensors[kS]);
  for (Op& op : other.ops)
    for (auto* ids : {&op.in, &op.out})
      for (TensorId& id : *ids)
        id = index(id) == kX ? TensorId{kS} : index(id) == kS ? TensorId{kX} : id;
  check_text_of(other);
}

/// The element, which is made if another fault has taken it away.
template <class List>
auto& at(List& list, size_t i) {
  if (list.size() <= i) list.resize(i + 1);
  return list[i];
}

std::vector<Fault> faults() {
  const auto op = [](size_t i, auto change) { return [=](Graph& g) { change(g.ops[i]); }; };
  const auto tensor = [](size_t i, auto change) { return [=](Graph& g) { change(g.tensors[i]); }; };
  const auto attr = [&](size_t i, const char* name, ir::AttrValue value) {
    return op(i, [=](Op& o) { o.attrs[name] = {value, {}}; });
  };
  return {
      // The graph.
      {"the name of the graph must be letters", [](Graph& g) { g.name = "a graph"; }},
      {"the name of the graph must be letters", [](Graph& g) { g.name = ""; }},
      {"'world' must be 1 to 64, found 0", [](Graph& g) { g.world = 0; }},
      {"'world' must be 1 to 64, found 65", [](Graph& g) { g.world = 65; }},
      {"'comm_buffer_bytes' must be at least 0, found -1",
       [](Graph& g) { g.comm_buffer_bytes = -1; }},
      // Dims and scalars.
      {"the name of a dim must be letters", [](Graph& g) { g.dims[0].name = "n n"; }},
      {"dim 'n' is declared twice", [](Graph& g) { g.dims.push_back(g.dims[0]); }},
      {"'min' of dim 'n' is 9, more than its 'max' of 8", [](Graph& g) { g.dims[0].min = 9; }},
      {"'min' of dim 'n' must be 1", [](Graph& g) { g.dims[0].min = 0; }},
      {"'max' of dim 'n' must be 1 to 2147483647, found 2147483648",
       [](Graph& g) { g.dims[0].max = int64_t{1} << 31; }},
      {"the typical value of dim 'n' must be 2 to 8, found 9",
       [](Graph& g) { g.dims[0].typical = 9; }},
      {"the typical value of scalar 'pos' must be 0 to 15, found 16",
       tensor(kPos, [](ir::Tensor& t) { t.typical = 16; })},
      {"a dim can't be called 'rank'", [](Graph& g) { g.dims.push_back({"rank", 1, 2, {}}); }},
      {"'pos' is the name of a dim and of a scalar",
       [](Graph& g) { g.dims.push_back({"pos", 1, 2, {}}); }},
      {"the range of scalar 'pos' is empty: [16, 16)",
       tensor(kPos, [](ir::Tensor& t) { t.range_lo = 16; })},
      {"the end of the range of scalar 'pos' must be -2147483648 to 2147483648, found 4294967296",
       tensor(kPos, [](ir::Tensor& t) { t.range_hi = int64_t{1} << 32; })},
      {"scalar 'pos' must be an i32 without a shape",
       tensor(kPos, [](ir::Tensor& t) { t.shape = {1}; })},
      // Tensors.
      {"the name of a tensor must be letters", tensor(kX, [](auto& t) { t.name = "x\n"; })},
      {"tensor 'x' is declared twice", tensor(kW, [](auto& t) { t.name = "x"; })},
      {"tensor 'h' is declared twice", tensor(kS, [](auto& t) { t.name = "h"; })},
      {"tensor 'x' has 0 axes", tensor(kX, [](auto& t) { t.shape.clear(); })},
      {"tensor 'x' has 5 axes", tensor(kX, [](auto& t) { t.shape = {1, 1, 1, 1, 1}; })},
      {"axis 1 of tensor 'x' must be at least 1, found 0",
       tensor(kX, [](auto& t) { at(t.shape, 1) = 0; })},
      {"axis 0 of tensor 'x' must be at least 1, but 'n - 2' is 0 with n = 2",
       tensor(kX, [](auto& t) { at(t.shape, 0) = Expr::var("n") - 2; })},
      {"dim 'n' may stand in axis 0 only, but this is axis 1 of tensor 'x'",
       tensor(kX, [](auto& t) { at(t.shape, 1) = Expr::var("n"); })},
      {"'rank' can't stand in axis 0 of tensor 'x'",
       tensor(kX, [](auto& t) { at(t.shape, 0) = Expr::var("rank"); })},
      {"scalar 'pos' can't stand in a shape",
       tensor(kX, [](auto& t) { at(t.shape, 0) = Expr::var("pos"); })},
      {"unknown name 'm' in axis 0 of tensor 'x'",
       tensor(kX, [](auto& t) { at(t.shape, 0) = Expr::var("m"); })},
      {"'w' is a tensor and can't stand in an expression",
       tensor(kX, [](auto& t) { at(t.shape, 0) = Expr::var("w"); })},
      {"division by zero", tensor(kX,
                                  [](auto& t) {
                                    at(t.shape, 0) =
                                        Expr::binary(Expr::Kind::Div, 4, Expr::var("n") - 2);
                                  })},
      {"tensor 'x' would take more than 2^48 bytes",
       tensor(kX, [](auto& t) { at(t.shape, 1) = int64_t{1} << 46; })},
      {"no op writes output 'z'", [](Graph& g) { add(g, "z", TensorKind::Output, {4}); }},
      {"no op writes temporary 'z'", [](Graph& g) { add(g, "z", TensorKind::Temp, {}); }},
      // Ops.
      {"unknown op 'alreduce'; did you mean 'allreduce'?",
       op(1, [](Op& o) { o.kind = "alreduce"; })},
      {"'s' is written twice by this op",
       op(1, [](Op& o) { o.out = {TensorId{kS}, TensorId{kS}}; })},
      {"unknown op 'fused'", op(2, [](Op& o) { o.kind = "fused"; })},
      {"'matmul' has tensor 7 as an input, but the graph has 7 tensors",
       op(0, [](Op& o) { at(o.in, 1) = TensorId{kTensors}; })},
      {"'matmul' has tensor 9 as an output",
       op(0, [](Op& o) { at(o.out, 0) = TensorId{kTensors + 2}; })},
      {"'matmul' takes 2 or 3 inputs, found 1", op(0, [](Op& o) { o.in.resize(1); })},
      {"'mul' gives 1 output, found 0", op(2, [](Op& o) { o.out.clear(); })},
      {"'pos' is a scalar, but 'mul' reads tensors",
       op(2, [](Op& o) { at(o.in, 0) = TensorId{kPos}; })},
      {"'x' is an input, which the graph only reads",
       op(2, [](Op& o) { at(o.out, 0) = TensorId{kX}; })},
      {"'s' is read before it is defined", [](Graph& g) { std::swap(g.ops[1], g.ops[2]); }},
      {"'s' is read by the op that defines it", op(1, [](Op& o) { at(o.in, 0) = at(o.out, 0); })},
      {"temporary 'h' is written twice", op(1, [](Op& o) { at(o.out, 0) = TensorId{kH}; })},
      {"the name of 'mul' must be letters", op(2, [](Op& o) { o.name = "-"; })},
      {"two ops are called 'h'", op(2,
                                    [](Op& o) {
                                      o.name = "h";
                                      o.named = true;
                                    })},
      // Attributes.
      {"'mul' has no attribute 'vlaue'; did you mean 'value'?", attr(2, "vlaue", 1.0)},
      {"'kv_append' has no 'at'", op(3, [](Op& o) { o.attrs.clear(); })},
      {"'transpose_b' of 'matmul' must be true or false, found the integer 1",
       attr(0, "transpose_b", Expr(1))},
      {"'reduce' of 'allreduce' must be", attr(1, "reduce", std::string("mean"))},
      {"'reduce' of 'allreduce' must be", attr(1, "reduce", true)},
      {"'value' of 'mul' must be a number", attr(2, "value", std::string("half"))},
      {"'value' of 'mul' is 1e+300, which does not fit in f32", attr(2, "value", 1e300)},
      {"'at' of 'kv_append' must be an integer or an expression", attr(3, "at", 0.5)},
      {"unknown name 'q' in 'at' of 'kv_append'", attr(3, "at", Expr::var("q"))},
      {"division by zero in '4 / rank' on rank 0",
       attr(3, "at", Expr::binary(Expr::Kind::Div, 4, Expr::var("rank")))},
      // Constraints.
      {"'after' of 'y' names op 'z', which is not defined", op(2, [](Op& o) { o.after = {"z"}; })},
      {"'after' of 'y' names op 'w', which is not defined; it is the name of a tensor",
       op(2, [](Op& o) { o.after = {"w"}; })},
      {"op 'h' waits for itself", op(0, [](Op& o) { o.after = {"h"}; })},
      {"these ops wait for each other: 'h' -> 's' -> 'h'", op(0, [](Op& o) { o.after = {"s"}; })},
      {"op 'h' names phase 'p', which is not defined", op(0, [](Op& o) { o.phase = "p"; })},
      {"two phases are called 'p'", [](Graph& g) { g.phases = {{"p", {}, {}}, {"p", {}, {}}}; }},
      {"phase 'p' names phase 'q', which is not defined",
       [](Graph& g) { g.phases = {{"p", {"q"}, {}}}; }},
      {"phase 'p' depends on itself", [](Graph& g) { g.phases = {{"p", {"p"}, {}}}; }},
      {"overlap region 'r' has no ops", [](Graph& g) { g.overlap_regions = {{"r", {}, {}}}; }},
      {"overlap region 'r' names op 'z', which is not defined",
       [](Graph& g) { g.overlap_regions = {{"r", {"z"}, {}}}; }},
      {"overlap region 'r' names op 'h' twice",
       [](Graph& g) { g.overlap_regions = {{"r", {"h", "h"}, {}}}; }},
      {"'stages' of 'pipeline' is empty", [](Graph& g) { g.pipeline = ir::Pipeline{}; }},
      {"op 'h' is in two places of the pipeline",
       [](Graph& g) { g.pipeline = ir::Pipeline{{{"h"}, {"h"}}, 1, {}}; }},
      {"'microbatches' must be 1 to 2147483647, found 0",
       [](Graph& g) { g.pipeline = ir::Pipeline{{{"h"}}, 0, {}}; }},
      // Roles.
      {"'compute' must be 1 to 2147483647, found 0",
       [](Graph& g) { g.sm_roles.value = ir::Roles(ir::RoleCounts{0, {}, {}}); }},
      {"'scheduler' has nothing to do under the schedule 'static'",
       [](Graph& g) { g.sm_roles.value = ir::Roles(ir::RoleCounts{{}, {}, 1}); }},
      {"'sm_roles' has no ranges",
       [](Graph& g) { g.sm_roles.value = ir::Roles(std::vector<ir::RoleRange>{}); }},
      {"the range of SMs [3, 3) is empty",
       [](Graph& g) {
         g.sm_roles.value = ir::Roles(std::vector<ir::RoleRange>{{3, 3, "comm", {}, {}}});
       }},
      {"'role' must be 'compute', 'comm' or 'scheduler', found 'worker'",
       [](Graph& g) {
         g.sm_roles.value = ir::Roles(std::vector<ir::RoleRange>{{0, 3, "worker", {}, {}}});
       }},
      {"SMs [2, 4) overlap SMs [0, 3)",
       [](Graph& g) {
         g.sm_roles.value = ir::Roles(
             std::vector<ir::RoleRange>{{0, 3, "compute", {}, {}}, {2, 4, "comm", {}, {}}});
       }},
      {"no range of 'sm_roles' with the role 'comm' takes 'allreduce'",
       [](Graph& g) {
         g.sm_roles.value = ir::Roles(std::vector<ir::RoleRange>{{0, 3, "compute", {}, {}}});
       }},
      {"'matmul' runs on 'compute' SMs, but this range is 'comm'",
       [](Graph& g) {
         g.sm_roles.value = ir::Roles(std::vector<ir::RoleRange>{{0, 3, "comm", {"matmul"}, {}}});
       }},
      {"unknown kind of op 'q'",
       [](Graph& g) {
         g.sm_roles.value = ir::Roles(std::vector<ir::RoleRange>{{0, 3, "comm", {"q"}, {}}});
       }},
      {"'when' must end in a variant 'else'",
       [](Graph& g) {
         g.sm_roles.value = std::vector<ir::RoleVariant>{{Expr::var("n"), ir::RoleAuto{}, {}}};
       }},
      {"'rank' can't stand in the condition of a variant",
       [](Graph& g) {
         g.sm_roles.value = std::vector<ir::RoleVariant>{{Expr::var("rank"), ir::RoleAuto{}, {}},
                                                         {std::nullopt, ir::RoleAuto{}, {}}};
       }},
      // Shapes.
      {"'matmul' cannot multiply a[n,16] by b[15,8]: the inner sizes differ (16 and 15)",
       tensor(kW, [](auto& t) { at(t.shape, 0) = 15; })},
  };
}

/// What compiling `g` says; that it fails is checked, and that nothing is thrown.
std::string refusal(const Graph& g) {
  ir::Diagnostics d;
  api::Options options;
  options.target = "cpu";
  bool ok = true;
  CHECK_NOTHROW(ok = api::compile(g, options, d).has_value());
  CHECK((!ok && d.has_errors()));
  return d.render();
}

TEST_CASE("each fault of a graph built by hand is told") {
  for (const Fault& fault : faults()) {
    Graph g = good();
    graph::name_ops(g);
    fault.make(g);
    CHECK_THAT(refusal(g), Contains(std::string("error: ") + fault.says));
  }
}

TEST_CASE("two faults at once crash nothing") {
  const auto all = faults();
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < all.size(); ++k) {
      Graph g = good();
      graph::name_ops(g);
      all[i].make(g);
      all[k].make(g);
      ir::Diagnostics d;
      INFO(all[i].says << " and " << all[k].says);
      CHECK_NOTHROW(graph::check_and_infer(g, {}, d));
    }
}

TEST_CASE("graphs without sense are refused without a crash") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Graph g = RandomGraph(seed).make();
    ir::Diagnostics d;
    INFO("seed " << seed);
    CHECK_NOTHROW(graph::check_and_infer(g, {}, d));
  }
}

/// What check_and_infer does to a graph of a frontend's: nothing.
void check_unchanged(const Graph& graph) {
  Graph again = graph;
  ir::Diagnostics d;
  const bool ok = graph::check_and_infer(again, {}, d);
  INFO(frontend::print_dsl(graph) << d.render());
  CHECK(ok);
  CHECK(again == graph);
  CHECK(frontend::print_dsl(again) == frontend::print_dsl(graph));
  CHECK(std::equal(again.tensors.begin(), again.tensors.end(), graph.tensors.begin(),
                   graph.tensors.end(), [](const ir::Tensor& a, const ir::Tensor& b) {
                     return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
                   }));
}

TEST_CASE("what a frontend accepts is right, and complete") {
  size_t graphs = 0;
  for (const char* folder : {"examples/graphs", "tests/e2e", "tests/ir"}) {
    for (const auto& file : std::filesystem::directory_iterator(test::source_path(folder))) {
      if (file.path().extension() != ".maco" && file.path().extension() != ".json") continue;
      std::string error;
      ir::Diagnostics d;
      const auto text = api::read_file(file.path().string(), error);
      REQUIRE(text);
      const auto graph = api::read_graph(file.path().filename().string(), *text, d);
      if (!graph) continue;
      INFO(file.path());
      check_unchanged(*graph);
      ++graphs;
    }
  }
  CHECK(graphs > 30);
}

}  // namespace
}  // namespace maco::test
