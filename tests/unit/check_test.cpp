#include "runtime/reference/check.h"

#include <fmt/format.h>

#include <cmath>

#include "compiler/frontend/frontend.h"
#include "tests/catch.h"
#include "tests/unit/reference_graph.h"

using namespace maco;
using namespace maco::reference;
using test::Contains;
using test::GraphMaker;

namespace {
Tensor ones(int64_t rows, int64_t cols) {
  return Tensor::of(ir::DType::F32, {rows, cols},
                    std::vector<double>(static_cast<size_t>(rows * cols), 1.0));
}
}  // namespace

TEST_CASE("a small error everywhere passes up to the bound", "[check]") {
  const Tensor e = ones(100, 100);
  Tensor a = e;
  for (int64_t i = 0; i < a.elements(); ++i) a.set(i, 1 + (i % 2 ? 1e-3 : -1e-3));
  CHECK(compare(a, e, 2e-3).ok);
  CHECK(compare(a, e, 2e-3).error == Approx(1e-3).epsilon(1e-3));
  CHECK_FALSE(compare(a, e, 0.9e-3).ok);
}

TEST_CASE("one wrong block fails though the tensor's own norm hides it", "[check]") {
  const Tensor e = ones(1024, 1024);
  Tensor a = e;
  a.set(70 * 1024 + 130, 5);  // 4 / 64 of its block, 4 / 1024 of the tensor
  const CheckResult r = compare(a, e, 1e-2);
  CHECK_FALSE(r.ok);
  CHECK(r.error == Approx(4.0 / 64));
  CHECK_THAT(r.what, Contains("rows [64,128), columns [128,192)"));
  CHECK_THAT(r.what, Contains("at [70,130]: 5, expected 1"));
}

TEST_CASE("a block of small values is held to the tensor's mean", "[check]") {
  Tensor e = ones(64, 128);
  for (int64_t i = 0; i < e.elements(); ++i)
    if (i % 128 >= 64) e.set(i, 1e-6);
  Tensor a = e;
  a.set(100, 2e-6);
  CHECK(compare(a, e, 1e-5).ok);
}

TEST_CASE("a short block at the edge is not drowned by large ones", "[check]") {
  const Tensor e = ones(65, 64);
  Tensor a = e;
  for (int64_t c = 0; c < 64; ++c) a.set(64 * 64 + c, 1.5);
  CHECK(compare(a, e, 0.1).error == Approx(0.5));
}

TEST_CASE("NaN and infinities must be in the same places", "[check]") {
  const auto of = [](std::vector<double> v) { return Tensor::of(ir::DType::F32, {3}, v); };
  CHECK(compare(of({1, NAN, INFINITY}), of({1, NAN, INFINITY}), 1e-5).ok);
  CHECK_THAT(compare(of({1, 2, 3}), of({1, NAN, 3}), 1).what, Contains("at [1]"));
  CHECK_FALSE(compare(of({1, NAN, 3}), of({1, 2, 3}), 1).ok);
  CHECK_FALSE(compare(of({1, INFINITY, 3}), of({1, -INFINITY, 3}), 1).ok);
  CHECK_FALSE(compare(of({1, INFINITY, 3}), of({1, 3e38, 3}), 1).ok);
}

TEST_CASE("zeros must be zeros and extreme values don't overflow", "[check]") {
  const auto of = [](std::vector<double> v) { return Tensor::of(ir::DType::F32, {2}, v); };
  CHECK(compare(of({0, 0}), of({0, -0.0}), 1e-5).ok);
  CHECK_FALSE(compare(of({0, 1e-30}), of({0, 0}), 0.5).ok);
  CHECK(compare(of({3e38, 3e38}), of({3e38, 3e38}), 1e-5).ok);
  CHECK_FALSE(compare(of({3e38, 2e38}), of({3e38, 3e38}), 1e-5).ok);
}

TEST_CASE("integers are equal or wrong", "[check]") {
  const Tensor e = Tensor::of(ir::DType::I32, {2, 2}, {1, 2, 3, 4}),
               a = Tensor::of(ir::DType::I32, {2, 2}, {1, 2, 7, 4});
  CHECK(compare(e, e, 0).ok);
  CHECK_THAT(compare(a, e, 1).what,
             Contains("1 of 4 elements differ, the first at [1,0]: 7, expected 3"));
}

TEST_CASE("types that differ are told", "[check]") {
  CHECK_THAT(compare(ones(2, 3), ones(3, 2), 1).what,
             Contains("it is f32[2,3], expected f32[3,2]"));
}

TEST_CASE("argmax may differ where values tie within the bound", "[check]") {
  const Tensor values = Tensor::of(ir::DType::F32, {1, 4}, {1, 100, 99.5, 2});
  const auto index = [](double i) { return Tensor::of(ir::DType::I32, {1}, {i}); };
  CHECK(compare_argmax(index(1), index(1), values, 1e-2).tied == 0);
  const CheckResult tie = compare_argmax(index(2), index(1), values, 1e-2);
  CHECK(tie.ok);
  CHECK(tie.tied == 1);
  CHECK_FALSE(compare_argmax(index(2), index(1), values, 1e-3).ok);
  CHECK_FALSE(compare_argmax(index(3), index(1), values, 1e-2).ok);
  CHECK_FALSE(compare_argmax(index(4), index(1), values, 1e-2).ok);
  CHECK_FALSE(compare_argmax(index(-1), index(1), values, 1e-2).ok);
}

TEST_CASE("nothing ties with an infinity, nor because a row holds one", "[check]") {
  const auto wrong = [](std::vector<double> row, double best, double other) {
    const auto index = [](double i) { return Tensor::of(ir::DType::I32, {1}, {i}); };
    const Tensor values = Tensor::of(ir::DType::F32, {1, 4}, row);
    CHECK(compare_argmax(index(best), index(best), values, 1e-2).ok);
    return !compare_argmax(index(other), index(best), values, 1e-2).ok;
  };
  CHECK(wrong({1, INFINITY, 3, 4}, 1, 3));
  CHECK(wrong({1, INFINITY, INFINITY, 4}, 1, 2));
  CHECK(wrong({1, -INFINITY, 3, 4}, 3, 0));
  CHECK(wrong({1, -INFINITY, 3, 4}, 3, 1));
  CHECK(wrong({-INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0, 2));
  CHECK(wrong({1, NAN, INFINITY, NAN}, 1, 2));
  CHECK(wrong({1, NAN, INFINITY, NAN}, 1, 3));
  CHECK_FALSE(wrong({1, -INFINITY, 3.99, 4}, 3, 2));
}

TEST_CASE("a result is held to the coarsest rounding on its way", "[check]") {
  GraphMaker g;
  const auto x = g.tensor("x", ir::TensorKind::Input, ir::DType::BF16, {4, 4});
  const auto exact = g.tensor("exact", ir::TensorKind::Output, ir::DType::F32, {4, 4});
  const auto y = g.tensor("y", ir::TensorKind::Output, ir::DType::F32, {4, 4});
  g.op("cast", {"x"}, {"exact"});
  g.op("silu", {"x"}, {"h"});
  g.op("cast", {"h"}, {"y"});
  const std::vector<double> bounds = bounds_of(g.graph);
  CHECK(bounds[ir::index(x)] == 1e-2);
  CHECK(bounds[ir::index(exact)] == 1e-5);
  CHECK(bounds[ir::index(y)] == 1e-2);
}

TEST_CASE("the checker knows an argmax and obeys rtol", "[check]") {
  GraphMaker g;
  const auto x = g.tensor("x", ir::TensorKind::Input, ir::DType::F32, {1, 3});
  const auto i = g.tensor("i", ir::TensorKind::Output, ir::DType::I32, {1});
  const auto y = g.tensor("y", ir::TensorKind::Output, ir::DType::F32, {1, 3});
  g.op("argmax", {"x"}, {"i"});
  g.op("relu", {"x"}, {"y"});
  Reference reference(g.graph);
  REQUIRE(reference.set(0, x, Tensor::of(ir::DType::F32, {1, 3}, {1, 5, 4.9})).ok);
  REQUIRE(reference.run({}).ok);
  const Tensor other = Tensor::of(ir::DType::I32, {1}, {2}),
               off = Tensor::of(ir::DType::F32, {1, 3}, {1, 5, 4.95});
  CHECK_FALSE(Checker(reference, {}).check(0, i, other).ok);
  CHECK(Checker(reference, 0.1).check(0, i, other).ok);
  CHECK_FALSE(Checker(reference, {}).check(0, y, off).ok);
  CHECK(Checker(reference, 0.1).check(0, y, off).ok);
  CHECK_THAT(to_line("y", 1, Checker(reference, {}).check(0, y, off)),
             Contains("'y' on rank 1: relative error"));
}

TEST_CASE("a comparison may fall either way where what is compared was rounded", "[check]") {
  const auto ok = [](bool rounded, std::vector<double> x, std::vector<double> got) {
    GraphMaker g;
    const auto from = g.tensor("x", ir::TensorKind::Input, ir::DType::F32, {3});
    const auto y = g.tensor("y", ir::TensorKind::Output, ir::DType::U8, {3});
    ir::Attr half;
    half.value = 0.5;
    if (rounded) g.op("exp", {"x"}, {"e"});
    g.op("lt", {rounded ? "e" : "x"}, {"y"}).attrs["value"] = half;
    Reference reference(g.graph);
    REQUIRE(reference.set(0, from, Tensor::of(ir::DType::F32, {3}, x)).ok);
    REQUIRE(reference.run({}).ok);
    return Checker(reference, {}).check(0, y, Tensor::of(ir::DType::U8, {3}, got)).ok;
  };
  const double near = std::log(0.5);
  CHECK(ok(true, {-3, near + 1e-6, 2}, {1, 1, 0}));
  CHECK(ok(true, {-3, near - 1e-6, 2}, {1, 0, 0}));
  CHECK_FALSE(ok(true, {-3, near + 1e-3, 2}, {1, 1, 0}));
  CHECK_FALSE(ok(true, {-3, near + 1e-6, 2}, {1, 2, 0}));
  CHECK_FALSE(ok(true, {-3, INFINITY, 2}, {1, 1, 0}));
  // x is bound, and so the same on both sides: no difference is allowed.
  CHECK(ok(false, {0.25, 0.5, 1}, {1, 0, 0}));
  CHECK_FALSE(ok(false, {0.25, 0.5, 1}, {1, 1, 0}));
}

TEST_CASE("a sum round a ring is rounded at each rank", "[check]") {
  GraphMaker g(33);
  for (const auto& [name, type] : {std::pair{"x", ir::DType::BF16}, {"w", ir::DType::F32}})
    g.tensor(name, ir::TensorKind::Input, type, {4, 4});
  ir::Attr ring, max;
  ring.value = std::string("ring");
  max.value = std::string("max");
  g.op("allreduce", {"x"}, {"a"}).attrs = {{"algorithm", ring}};
  g.op("allreduce", {"x"}, {"b"}).attrs = {{"algorithm", ring}, {"reduce", max}};
  g.op("allreduce", {"w"}, {"c"}).attrs = {{"algorithm", ring}};
  const std::vector<double> bounds = bounds_of(g.graph);
  const auto of = [&](const char* name) { return bounds[ir::index(*g.graph.find_tensor(name))]; };
  CHECK(of("a") == Approx(1e-2 * 2));
  CHECK(of("b") == 1e-2);
  CHECK(of("c") == 1e-5);
}

TEST_CASE("bounds grow with the roundings of ranks that what is received went through", "[check]") {
  ir::Diagnostics d;
  const auto graph = frontend::parse_dsl(
      d.add_file("g.maco",
                 "graph g(world = 32) {\n  input x : bf16[4, 4]\n"
                 "  r = recv(src = rank - 1, if = rank > 0, shape = [4, 4], dtype = bf16)\n"
                 "  s = add(x, r)\n  send(s, dst = rank + 1, if = rank + 1 < world)\n"
                 "  output y : bf16[4, 4] = copy(s)\n}\n"),
      d);
  REQUIRE(graph);
  CHECK(bounds_of(*graph)[ir::index(*graph->find_tensor("y"))] == Approx(1e-2 * 2));  // 32 sums
}

TEST_CASE("bounds grow with the roundings on the longest path", "[check]") {
  GraphMaker g;
  g.tensor("h0", ir::TensorKind::Input, ir::DType::BF16, {4, 4});
  g.tensor("s", ir::TensorKind::State, ir::DType::BF16, {4, 4});
  g.tensor("y", ir::TensorKind::Output, ir::DType::F32, {4, 4});
  for (int i = 0; i < 32; ++i) {
    g.op("mul", {fmt::format("h{}", i), "h0"}, {fmt::format("h{}", i + 1)});
    if (i == 7) g.op("copy", {"h8"}, {"s"});
  }
  g.op("copy", {"h32"}, {"m"});
  g.op("exp", {"m"}, {"y"});
  g.op("mul", {"s", "s"}, {"z"});
  const std::vector<double> bounds = bounds_of(g.graph);
  const auto of = [&](const char* name) { return bounds[ir::index(*g.graph.find_tensor(name))]; };
  CHECK(of("h8") == 1e-2);
  CHECK(of("h32") == Approx(1e-2 * 2));
  CHECK(of("m") == of("h32"));  // moved
  CHECK(of("y") == of("h32"));  // f32, as good as what it is made of
  CHECK(of("s") == of("h8"));
  CHECK(of("z") == Approx(1e-2 * std::sqrt(9.0 / 8)));
}
