#include "runtime/reference/fill.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/unit/reference_graph.h"

using namespace maco;
using namespace maco::reference;
using test::GraphMaker;

namespace {
struct Moments {
  double mean = 0, deviation = 0, fourth = 0;
};
Moments moments(const Tensor& t) {
  Moments m;
  const std::vector<double> v = t.doubles();
  const auto n = static_cast<double>(v.size());
  for (double x : v) m.mean += x / n;
  for (double x : v) m.deviation += (x - m.mean) * (x - m.mean) / n;
  for (double x : v) m.fourth += std::pow(x - m.mean, 4) / n / (m.deviation * m.deviation);
  m.deviation = std::sqrt(m.deviation);
  return m;
}
}  // namespace

TEST_CASE("fill values are normal with the deviation of their kind", "[fill]") {
  GraphMaker g;
  const auto x = g.tensor("x", ir::TensorKind::Input, ir::DType::F32, {301, 256});
  const auto w = g.tensor("w", ir::TensorKind::Param, ir::DType::BF16, {256, 320});
  const auto scale = g.tensor("scale", ir::TensorKind::Param, ir::DType::F16, {100000});
  g.op("matmul", {"x", "w"}, {"y"});
  const Moments mx = moments(fill(g.graph, x, 0, 1, {301, 256}));
  CHECK(std::abs(mx.mean) < 0.02);
  CHECK(mx.deviation == Approx(1).epsilon(0.02));
  CHECK(mx.fourth == Approx(3).epsilon(0.05));
  // K is axis 0 here
  CHECK(moments(fill(g.graph, w, 0, 1, {256, 320})).deviation == Approx(1.0 / 16).epsilon(0.02));
  CHECK(moments(fill(g.graph, scale, 0, 1, {100000})).deviation == Approx(1).epsilon(0.02));
}

TEST_CASE("fill values depend on seed, name, rank and index alone", "[fill]") {
  GraphMaker g;
  const auto a = g.tensor("a", ir::TensorKind::Input, ir::DType::F32, {100000});
  const auto b = g.tensor("b", ir::TensorKind::Input, ir::DType::F32, {100000});
  const Tensor first = fill(g.graph, a, 0, 1, {100000});
  CHECK(first == fill(g.graph, a, 0, 1, {100000}));
  CHECK_FALSE(first == fill(g.graph, a, 1, 1, {100000}));
  CHECK_FALSE(first == fill(g.graph, a, 0, 2, {100000}));
  CHECK_FALSE(first == fill(g.graph, b, 0, 1, {100000}));
  const Tensor fewer = fill(g.graph, a, 0, 1, {70001});
  CHECK(fewer.at(70000) == first.at(70000));
  // From the formulas in double precision. Recorded results depend on these values: they must not
  // change.
  CHECK(first.at(0) == Approx(-0.37815359242).epsilon(1e-6));
  CHECK(first.at(99999) == Approx(-0.35111814707).epsilon(1e-6));
}

TEST_CASE("what becomes an id is within the table, whatever moves it", "[fill]") {
  GraphMaker g(2);
  g.tensor("table", ir::TensorKind::Param, ir::DType::BF16, {500, 8});
  const auto ids = g.tensor("ids", ir::TensorKind::Input, ir::DType::I32, {4});
  const auto old = g.tensor("old", ir::TensorKind::State, ir::DType::I32, {8, 1});
  const auto sent = g.tensor("sent", ir::TensorKind::Input, ir::DType::I32, {4});
  const auto rounded = g.tensor("rounded", ir::TensorKind::Input, ir::DType::BF16, {4});
  const auto added = g.tensor("added", ir::TensorKind::Input, ir::DType::I32, {4});
  g.op("reshape", {"ids"}, {"rows"}, {}, {4, 1});
  g.op("kv_append", {"old", "rows"}, {"old"});
  g.op("reshape", {"old"}, {"flat"}, {}, {8});
  g.op("embedding", {"table", "flat"}, {"e"});
  g.op("send", {"sent"}, {});
  g.op("recv", {}, {"got"}, ir::DType::I32, {4});
  g.op("embedding", {"table", "got"}, {"f"});
  g.op("cast", {"rounded"}, {"whole"}, ir::DType::I32);
  g.op("embedding", {"table", "whole"}, {"h"});
  g.op("add", {"added", "got"}, {"sum"});
  const auto check = [&](ir::TensorId tensor, int64_t lo, int64_t hi) {
    const FillRule rule = fill_rule(g.graph, tensor);
    INFO(g.graph[tensor].name);
    CHECK(rule.kind == FillRule::Kind::Integers);
    CHECK(rule.lo == lo);
    CHECK(rule.hi == hi);
  };
  check(ids, 0, 500);
  check(sent, 0, 500);
  check(rounded, 0, 257);  // all of them exact in bf16
  check(added, -8, 8);
  CHECK(fill_rule(g.graph, old).kind == FillRule::Kind::Zero);
  CHECK(fill_rule(g.graph, *g.graph.find_tensor("table")).kind == FillRule::Kind::Normal);
}

TEST_CASE("integers are filled within what their use allows", "[fill]") {
  GraphMaker g;
  g.tensor("table", ir::TensorKind::Param, ir::DType::BF16, {50, 8});
  const auto ids = g.tensor("ids", ir::TensorKind::Input, ir::DType::I32, {4000});
  const auto other = g.tensor("other", ir::TensorKind::Input, ir::DType::I32, {4000});
  const auto state = g.tensor("cache", ir::TensorKind::State, ir::DType::BF16, {4, 4});
  g.op("reshape", {"ids"}, {"flat"}, ir::DType::I32, {4000});
  g.op("embedding", {"table", "flat"}, {"e"});
  double lo = 1e9, hi = -1e9, other_lo = 1e9;
  const Tensor t = fill(g.graph, ids, 0, 1, {4000}), u = fill(g.graph, other, 0, 1, {4000});
  for (int64_t i = 0; i < 4000; ++i) {
    lo = std::min(lo, t.at(i)), hi = std::max(hi, t.at(i));
    other_lo = std::min(other_lo, u.at(i));
  }
  CHECK(lo == 0);
  CHECK(hi == 49);
  CHECK(other_lo == -8);
  CHECK(fill_rule(g.graph, state).kind == FillRule::Kind::Zero);
}
