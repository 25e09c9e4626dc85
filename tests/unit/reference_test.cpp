#include "runtime/reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "runtime/reference/numbers.h"
#include "runtime/reference/parallel.h"
#include "tests/catch.h"
#include "tests/unit/address_limit.h"
#include "tests/unit/reference_graph.h"

using namespace maco;
using namespace maco::reference;
using ir::DType;
using ir::TensorKind;
using test::attr;
using test::Contains;
using test::expr;
using test::GraphMaker;
using test::number;

namespace {

using Doubles = std::vector<double>;

Tensor f32(Extents shape, const Doubles& v) { return Tensor::of(DType::F32, std::move(shape), v); }
Tensor i32(Extents shape, const Doubles& v) { return Tensor::of(DType::I32, std::move(shape), v); }

std::vector<ir::Expr> exprs(const Extents& shape) { return {shape.begin(), shape.end()}; }

// One op on inputs i0, i1, ... of one rank, with outputs of the given shape.
struct OneOp {
  GraphMaker g;
  std::vector<Tensor> inputs;
  OneOp(const std::string& kind, std::vector<Tensor> in, DType type, const Extents& shape,
        int outputs = 1)
      : inputs(std::move(in)) {
    std::vector<std::string> names, out;
    for (const Tensor& t : inputs) {
      names.push_back("i" + std::to_string(names.size()));
      g.tensor(names.back(), TensorKind::Input, t.dtype, exprs(t.shape));
    }
    for (int o = 0; o < outputs; ++o) {
      out.push_back("o" + std::to_string(o));
      g.tensor(out.back(), TensorKind::Output, type, exprs(shape));
    }
    g.op(kind, names, out);
  }
  OneOp& with(const std::string& name, ir::Attr value) {
    g.graph.ops[0].attrs[name] = std::move(value);
    return *this;
  }
  Status status;
  Doubles run(size_t output = 0) {
    Reference reference(g.graph);
    for (size_t i = 0; i < inputs.size(); ++i)
      REQUIRE(reference.set(0, ir::id_of<ir::TensorId>(i), inputs[i]).ok);
    status = reference.run({});
    if (!status.ok) return {};
    return reference.get(0, ir::id_of<ir::TensorId>(inputs.size() + output)).doubles();
  }
};

void check_near(const Doubles& got, const Doubles& expected, double margin = 1e-6) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(margin));
}

}  // namespace

TEST_CASE("every code of a small float is read and written back", "[reference]") {
  for (DType t : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2}) {
    const uint32_t codes = ir::size_of(t) == 1 ? 256 : 65536;
    uint32_t wrong = 0;
    for (uint32_t c = 0; c < codes; ++c) {
      std::byte in[4] = {std::byte(c & 255), std::byte(c >> 8)}, out[4] = {};
      const double v = decode(t, in);
      encode(t, v, out);
      const bool infinite = std::isinf(v) && t == DType::F8E5M2;
      if (std::isnan(v) ? !std::isnan(decode(t, out))
                        : !infinite && (out[0] != in[0] || out[1] != in[1]))
        ++wrong;
    }
    INFO(ir::name(t));
    CHECK(wrong == 0);
  }
}

TEST_CASE("rounding is to nearest even, once", "[reference]") {
  CHECK(round_to(DType::BF16, 1 + 1.0 / 256) == 1);              // half way, down to even
  CHECK(round_to(DType::BF16, 1 + 3.0 / 256) == 1 + 4.0 / 256);  // half way, up to even
  // not first to f32, which would be half way
  CHECK(round_to(DType::BF16, 1 + 1.0 / 256 + 1e-12) == 1 + 2.0 / 256);
  CHECK(round_to(DType::F16, 65519) == 65504);
  CHECK(std::isinf(round_to(DType::F16, 65520)));
  CHECK(round_to(DType::F16, std::ldexp(1, -25)) == 0);
  CHECK(round_to(DType::F16, std::ldexp(1.001, -25)) == std::ldexp(1, -24));
  CHECK(round_to(DType::F16, std::ldexp(1, -26)) == 0);
  CHECK(std::isinf(round_to(DType::BF16, 3.4e38)));
  CHECK(round_to(DType::F8E4M3, 1e9) == 448);
  CHECK(round_to(DType::F8E4M3, -INFINITY) == -448);
  CHECK(round_to(DType::F8E5M2, INFINITY) == 57344);
  CHECK(std::isnan(round_to(DType::F8E4M3, NAN)));
  CHECK(round_to(DType::F8E4M3, 17) == 16);
  CHECK(round_to(DType::F8E4M3, 19) == 20);
  CHECK(round_to(DType::I32, -2.9) == -2);
  CHECK(round_to(DType::I32, 1e20) == 2147483647);
  CHECK(round_to(DType::I32, -1e20) == -2147483648.0);
  CHECK(round_to(DType::I32, NAN) == 0);
  CHECK(round_to(DType::U8, 300.7) == 255);
  CHECK(round_to(DType::U8, -3) == 0);
}

TEST_CASE("a loop over all cores runs where the system gives no threads", "[reference]") {
  if (!test::can_limit()) return;
  std::vector<std::atomic<int>> seen(1000);
  {
    const test::AddressLimit limit(size_t{1} << 20);
    parallel_for(1000, 1e6, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
}

TEST_CASE("matmul", "[reference]") {
  const Tensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(OneOp("matmul", {a, f32({3, 2}, {1, 0, 0, 1, 1, 1})}, DType::F32, {2, 2}).run() ==
        Doubles{4, 5, 10, 11});
  CHECK(
      OneOp("matmul", {a, f32({2, 3}, {1, 0, 1, 0, 1, 1}), f32({2}, {0, -20})}, DType::F32, {2, 2})
          .with("transpose_b", attr(true))
          .with("activation", attr(std::string("relu")))
          .run() == Doubles{4, 0, 10, 0});
  CHECK(OneOp("matmul", {i32({1, 2}, {65536, 1}), i32({2, 1}, {65536, 7})}, DType::I32, {1, 1})
            .run() == Doubles{7});
}

TEST_CASE("large matmuls agree with a plain sum, in every type and layout", "[reference]") {
  const int64_t m = 7, k = 300, n = 37;
  for (DType t : {DType::F32, DType::BF16, DType::F8E4M3})
    for (bool transposed : {false, true}) {
      Tensor a(t, {m, k}), b(t, transposed ? Extents{n, k} : Extents{k, n});
      for (int64_t i = 0; i < a.elements(); ++i) a.set(i, std::sin(static_cast<double>(i)));
      for (int64_t i = 0; i < b.elements(); ++i) b.set(i, std::cos(static_cast<double>(i)));
      Doubles expected;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t s = 0; s < k; ++s)
            sum += a.at(i * k + s) * b.at(transposed ? j * k + s : s * n + j);
          expected.push_back(sum);
        }
      check_near(
          OneOp("matmul", {a, b}, DType::F32, {m, n}).with("transpose_b", attr(transposed)).run(),
          expected, 2e-5);
    }
}

TEST_CASE("elementwise ops", "[reference]") {
  const Tensor x = f32({2, 2}, {1, -2, NAN, 4});
  CHECK(OneOp("add", {f32({2, 2}, {1, 2, 3, 4}), f32({2}, {10, 20})}, DType::F32, {2, 2}).run() ==
        Doubles{11, 22, 13, 24});
  CHECK(OneOp("mul", {f32({2}, {1, 2})}, DType::F32, {2}).with("value", attr(0.5)).run() ==
        Doubles{0.5, 1});
  CHECK(OneOp("sub", {i32({2}, {-2147483648.0, 5})}, DType::I32, {2})
            .with("value", number(1))
            .run() == Doubles{2147483647, 4});
  CHECK(OneOp("add", {i32({2}, {-1, 5})}, DType::I32, {2}).with("value", attr(1e3)).run() ==
        Doubles{999, 1005});
  CHECK(OneOp("mul", {i32({1}, {7})}, DType::I32, {1}).with("value", attr(-0.0)).run() ==
        Doubles{0});
  CHECK(
      OneOp("minimum", {i32({1}, {7})}, DType::I32, {1}).with("value", attr(-2147483648.0)).run() ==
      Doubles{-2147483648.0});
  OneOp half("add", {i32({1}, {7})}, DType::I32, {1});
  half.with("value", attr(0.5)).run();
  CHECK_THAT(half.status.message, Contains("'value' is not an integer"));
  const Doubles top = OneOp("maximum", {x, f32({1}, {2})}, DType::F32, {2, 2}).run();
  CHECK((top[0] == 2 && top[1] == 2 && std::isnan(top[2]) && top[3] == 4));
  CHECK(std::isnan(OneOp("minimum", {f32({1}, {2}), f32({1}, {NAN})}, DType::F32, {1}).run()[0]));
  check_near(OneOp("silu", {f32({2}, {1, -1000})}, DType::F32, {2}).run(), {0.7310585786, 0});
  check_near(OneOp("gelu", {f32({2}, {1, -1})}, DType::F32, {2}).run(),
             {0.8413447461, -0.1586552539});
  check_near(OneOp("gelu", {f32({1}, {1})}, DType::F32, {1})
                 .with("approximate", attr(std::string("tanh")))
                 .run(),
             {0.8411919906});
  check_near(OneOp("swiglu", {f32({1}, {1}), f32({1}, {3})}, DType::F32, {1}).run(),
             {2.1931757358});
  check_near(OneOp("sigmoid", {f32({1}, {0})}, DType::F32, {1}).run(), {0.5});
  CHECK(OneOp("relu", {i32({2}, {-3, 3})}, DType::I32, {2}).run() == Doubles{0, 3});
}

TEST_CASE("functions, quotients and powers", "[reference]") {
  const auto of = [](const char* kind, const Doubles& v) {
    return OneOp(kind, {f32({static_cast<int64_t>(v.size())}, v)}, DType::F32,
                 {static_cast<int64_t>(v.size())})
        .run();
  };
  check_near(of("sqrt", {4, 2}), {2, 1.4142135624});
  check_near(of("rsqrt", {4, 2}), {0.5, 0.7071067812});
  check_near(of("log", {1, 10}), {0, 2.3025850930});
  check_near(of("sin", {1, 1e10}), {0.8414709848, -0.4875060251});
  check_near(of("cos", {1, 1e10}), {0.5403023059, 0.8731196227});
  check_near(of("erf", {1, -0.5}), {0.8427007929, -0.5204998778});
  CHECK(of("neg", {1, -2}) == Doubles{-1, 2});
  CHECK(of("abs", {1, -2}) == Doubles{1, 2});
  CHECK(std::isnan(of("sqrt", {-1})[0]));
  CHECK(std::isnan(of("log", {-1})[0]));
  CHECK(of("log", {0}) == Doubles{-INFINITY});
  CHECK(of("rsqrt", {0}) == Doubles{INFINITY});
  CHECK(OneOp("neg", {i32({2}, {-2147483648.0, 5})}, DType::I32, {2}).run() ==
        Doubles{-2147483648.0, -5});
  CHECK(OneOp("abs", {i32({2}, {-2147483648.0, -5})}, DType::I32, {2}).run() ==
        Doubles{-2147483648.0, 5});
  check_near(OneOp("div", {f32({2}, {1, 5}), f32({2}, {4, 3})}, DType::F32, {2}).run(),
             {0.25, 1.6666666667});
  check_near(OneOp("pow", {f32({2}, {2, 9}), f32({2}, {-3, 0.5})}, DType::F32, {2}).run(),
             {0.125, 3});
  CHECK(OneOp("pow", {f32({1}, {NAN})}, DType::F32, {1}).with("value", number(0)).run() ==
        Doubles{1});
  check_near(OneOp("geglu", {f32({1}, {1}), f32({1}, {3})}, DType::F32, {1}).run(), {2.5240340338});
  check_near(OneOp("geglu", {f32({1}, {1}), f32({1}, {3})}, DType::F32, {1})
                 .with("approximate", attr(std::string("tanh")))
                 .run(),
             {2.5235759718});
}

TEST_CASE("comparisons, bounds and choices", "[reference]") {
  const Doubles v = {1, 2, 3, NAN};
  const auto against = [&](const char* kind) {
    return OneOp(kind, {f32({4}, v)}, DType::U8, {4}).with("value", number(2)).run();
  };
  CHECK(against("eq") == Doubles{0, 1, 0, 0});
  CHECK(against("ne") == Doubles{1, 0, 1, 1});
  CHECK(against("lt") == Doubles{1, 0, 0, 0});
  CHECK(against("le") == Doubles{1, 1, 0, 0});
  CHECK(against("gt") == Doubles{0, 0, 1, 0});
  CHECK(against("ge") == Doubles{0, 1, 1, 0});
  CHECK(OneOp("lt", {i32({2, 2}, {16777217, 1, 2, 3}), i32({2}, {16777216, 3})}, DType::F32, {2, 2})
            .run() == Doubles{0, 1, 1, 0});
  const auto clamped = [&](const Doubles& x, std::optional<double> min, std::optional<double> max) {
    OneOp op("clamp", {f32({static_cast<int64_t>(x.size())}, x)}, DType::F32,
             {static_cast<int64_t>(x.size())});
    if (min) op.with("min", attr(*min));
    if (max) op.with("max", attr(*max));
    return op.run();
  };
  CHECK(clamped({-3, 0.5, 3}, -1.0, 2.0) == Doubles{-1, 0.5, 2});
  CHECK(clamped({-3, 0.5, 3}, {}, 2.0) == Doubles{-3, 0.5, 2});
  CHECK(clamped({-3, 0.5, 3}, 2.0, -1.0) == Doubles{-1, -1, -1});
  CHECK(std::isnan(clamped({NAN}, 0.0, 1.0)[0]));
  CHECK(OneOp("clamp", {i32({2}, {-5, 5})}, DType::I32, {2}).with("min", number(-2)).run() ==
        Doubles{-2, 5});
  const Tensor mask = Tensor::of(DType::U8, {3}, {0, 1, 255});
  CHECK(OneOp("where", {mask, f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6})}, DType::F32, {3}).run() ==
        Doubles{4, 2, 3});
  CHECK(OneOp("where", {mask, i32({3}, {1, 2, 3})}, DType::I32, {3})
            .with("value", number(-7))
            .run() == Doubles{-7, 2, 3});
}

TEST_CASE("norms and softmax", "[reference]") {
  check_near(OneOp("rmsnorm", {f32({1, 2}, {3, 4}), f32({2}, {1, 2})}, DType::F32, {1, 2})
                 .with("eps", attr(0.0))
                 .run(),
             {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)});
  check_near(OneOp("layernorm", {f32({1, 2}, {1, 3}), f32({2}, {1, 2}), f32({2}, {0, 1})},
                   DType::F32, {1, 2})
                 .with("eps", attr(0.0))
                 .run(),
             {-1, 3});
  check_near(
      OneOp("softmax", {f32({2, 2}, {1000, 1000, 0, std::log(3.0)})}, DType::F32, {2, 2}).run(),
      {0.5, 0.5, 0.25, 0.75});
}

TEST_CASE("rope turns pairs by position", "[reference]") {
  // head_dim 4: frequencies 1 and 1/100.
  const double c = std::cos(2.0), s = std::sin(2.0), c2 = std::cos(0.02), s2 = std::sin(0.02);
  const Tensor x = f32({1, 4}, {1, 2, 3, 4});
  check_near(OneOp("rope", {x}, DType::F32, {1, 4})
                 .with("head_dim", number(4))
                 .with("position", number(2))
                 .run(),
             {c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2});
  check_near(OneOp("rope", {x, i32({1}, {2})}, DType::F32, {1, 4})
                 .with("head_dim", number(4))
                 .with("interleaved", attr(true))
                 .run(),
             {c - 2 * s, 2 * c + s, 3 * c2 - 4 * s2, 4 * c2 + 3 * s2});
}

TEST_CASE("rope looks cosines and sines up", "[reference]") {
  const Tensor x = f32({1, 4}, {1, 2, 3, 4});
  const Tensor cosines = f32({2, 4}, {0, 0, 0, 0, 1, 2, 3, 4}),
               sines = f32({2, 4}, {0, 0, 0, 0, 5, 6, 7, 8});
  check_near(OneOp("rope", {x, cosines, sines}, DType::F32, {1, 4})
                 .with("head_dim", number(4))
                 .with("position", number(1))
                 .run(),
             {1 * 1 - 3 * 5, 2 * 2 - 4 * 6, 3 * 3 + 1 * 7, 4 * 4 + 2 * 8});
  check_near(OneOp("rope", {x, i32({1}, {1}), cosines, sines}, DType::F32, {1, 4})
                 .with("head_dim", number(4))
                 .with("interleaved", attr(true))
                 .run(),
             {1 * 1 - 2 * 5, 2 * 2 + 1 * 6, 3 * 3 - 4 * 7, 4 * 4 + 3 * 8});
  check_near(OneOp("rope", {x, f32({1, 2}, {1, 2}), f32({1, 2}, {5, 6})}, DType::F32, {1, 4})
                 .with("head_dim", number(4))
                 .with("position", number(0))
                 .run(),
             {1 * 1 - 3 * 5, 2 * 2 - 4 * 6, 3 * 1 + 1 * 5, 4 * 2 + 2 * 6});
}

TEST_CASE("rope turns a part of a head by frequencies that are given", "[reference]") {
  const double c = std::cos(3 * 0.5), s = std::sin(3 * 0.5), c2 = std::cos(-6.0),
               s2 = std::sin(-6.0);
  const Tensor x = f32({1, 6}, {1, 2, 3, 4, 5, 6}), frequencies = f32({2}, {0.5, -2});
  check_near(OneOp("rope", {x, frequencies}, DType::F32, {1, 6})
                 .with("head_dim", number(6))
                 .with("rotary_dim", number(4))
                 .with("position", number(3))
                 .run(),
             {c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2, 5, 6});
  check_near(
      OneOp("rope", {x, i32({1}, {3}), frequencies}, DType::F32, {1, 6})
          .with("head_dim", number(6))
          .with("rotary_dim", number(4))
          .with("interleaved", attr(true))
          .with("attention_factor", attr(2.0))
          .run(),
      {2 * (c - 2 * s), 2 * (2 * c + s), 2 * (3 * c2 - 4 * s2), 2 * (4 * c2 + 3 * s2), 5, 6});
  // Worked out, they fall off over what turns; a head may have tables of it, too.
  check_near(OneOp("rope", {x}, DType::F32, {1, 6})
                 .with("head_dim", number(6))
                 .with("rotary_dim", number(2))
                 .with("position", number(1))
                 .run(),
             {std::cos(1.0) - 2 * std::sin(1.0), 2 * std::cos(1.0) + std::sin(1.0), 3, 4, 5, 6});
  check_near(OneOp("rope", {x, f32({1, 2}, {2, 3}), f32({1, 2}, {5, 7})}, DType::F32, {1, 6})
                 .with("head_dim", number(6))
                 .with("rotary_dim", number(2))
                 .with("position", number(0))
                 .with("attention_factor", attr(0.5))
                 .run(),
             {0.5 * (1 * 2 - 2 * 5), 0.5 * (2 * 3 + 1 * 7), 3, 4, 5, 6});
}

TEST_CASE("rope's scaling stretches slow turns only", "[reference]") {
  const std::map<std::string, double> scaling = {{"factor", 8},
                                                 {"low_freq_factor", 1},
                                                 {"high_freq_factor", 4},
                                                 {"original_max_position", 8192}};
  // With head_dim 4 and theta 1e8, the second pair rotates 8192 * 1e-4 / 2 pi = 0.13 times: it is
  // slowed down by 8.
  check_near(
      OneOp("rope", {f32({1, 4}, {1, 1, 0, 0})}, DType::F32, {1, 4})
          .with("head_dim", number(4))
          .with("theta", attr(1e8))
          .with("position", number(4000))
          .with("scaling", attr(scaling))
          .run(),
      {std::cos(4000.0), std::cos(4000 * 1e-4 / 8), std::sin(4000.0), std::sin(4000 * 1e-4 / 8)});
}

TEST_CASE("attention: causal, grouped heads, length", "[reference]") {
  // Zero queries weigh all that they see equally.
  const Tensor q = f32({2, 4}, Doubles(8, 0)), k = f32({4, 2}, Doubles(8, 1)),
               v = f32({4, 2}, {1, 10, 2, 20, 3, 30, 100, 1000});
  check_near(OneOp("attention", {q, k, v}, DType::F32, {2, 4})
                 .with("head_dim", number(2))
                 .with("causal", attr(true))
                 .with("length", number(3))
                 .run(),
             {1.5, 15, 1.5, 15, 2, 20, 2, 20});
  check_near(OneOp("attention", {q, k, v}, DType::F32, {2, 4})
                 .with("head_dim", number(2))
                 .with("causal", attr(true))
                 .with("length", number(1))
                 .run(),
             {0, 0, 0, 0, 1, 10, 1, 10});
  check_near(OneOp("attention", {f32({1, 1}, {2}), f32({2, 1}, {0, 1}), f32({2, 1}, {0, 1})},
                   DType::F32, {1, 1})
                 .with("head_dim", number(1))
                 .with("scale", attr(0.5))
                 .run(),
             {1 / (1 + std::exp(-1.0))});
}

TEST_CASE("attention: windows and caps", "[reference]") {
  const Tensor q = f32({3, 1}, Doubles(3, 0)), k = f32({4, 1}, Doubles(4, 1)),
               v = f32({4, 1}, {1, 2, 4, 1000});
  const auto seen = [&](int64_t length, int64_t window) {
    return OneOp("attention", {q, k, v}, DType::F32, {3, 1})
        .with("head_dim", number(1))
        .with("causal", attr(true))
        .with("length", number(length))
        .with("window", number(window))
        .run();
  };
  check_near(seen(3, 1), {1, 2, 4});
  check_near(seen(3, 2), {1, 1.5, 3});
  check_near(seen(3, 9), {1, 1.5, 7.0 / 3});
  check_near(seen(2, 2), {0, 1, 1.5});
  // A query and keys whose scores are 3 and -1.
  const double weight = std::exp(2 * std::tanh(1.5)), other = std::exp(2 * std::tanh(-0.5));
  check_near(OneOp("attention", {f32({1, 1}, {2}), f32({2, 1}, {3, -1}), f32({2, 1}, {1, 0})},
                   DType::F32, {1, 1})
                 .with("head_dim", number(1))
                 .with("scale", attr(0.5))
                 .with("softcap", attr(2.0))
                 .run(),
             {weight / (weight + other)});
}

TEST_CASE("reductions", "[reference]") {
  const Tensor x = f32({2, 3}, {1, 5, 5, 7, NAN, 9});
  CHECK(OneOp("argmax", {x}, DType::I32, {2}).run() == Doubles{1, 1});
  CHECK(OneOp("sum", {f32({2, 2}, {1, 2, 3, 4})}, DType::F32, {2}).run() == Doubles{3, 7});
  CHECK(OneOp("mean", {f32({4}, {1, 2, 3, 4})}, DType::F32, {1}).run() == Doubles{2.5});
  CHECK(std::isnan(OneOp("max", {x}, DType::F32, {2}).run()[1]));
  CHECK(OneOp("sum", {i32({2}, {2147483647, 1})}, DType::I32, {1}).run() == Doubles{-2147483648.0});
}

TEST_CASE("movement", "[reference]") {
  const Tensor x = i32({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(OneOp("transpose", {x}, DType::I32, {3, 2}).run() == Doubles{1, 4, 2, 5, 3, 6});
  CHECK(OneOp("transpose", {i32({1, 2, 3}, {1, 2, 3, 4, 5, 6})}, DType::I32, {2, 1, 3})
            .with("perm", attr(std::vector<ir::Expr>{1, 0, 2}))
            .run() == Doubles{1, 2, 3, 4, 5, 6});
  CHECK(OneOp("slice", {x}, DType::I32, {2, 2})
            .with("axis", number(-1))
            .with("begin", number(0))
            .with("step", number(2))
            .run() == Doubles{1, 3, 4, 6});
  CHECK(OneOp("slice", {x}, DType::I32, {1, 3})
            .with("axis", number(0))
            .with("begin", number(-1))
            .run() == Doubles{4, 5, 6});
  CHECK(
      OneOp("concat", {x, i32({2, 1}, {7, 8})}, DType::I32, {2, 4}).with("axis", number(1)).run() ==
      Doubles{1, 2, 3, 7, 4, 5, 6, 8});
  OneOp halves("split", {i32({2, 2}, {1, 2, 3, 4})}, DType::I32, {2, 1}, 2);
  halves.with("axis", number(1));
  CHECK(halves.run(0) == Doubles{1, 3});
  CHECK(halves.run(1) == Doubles{2, 4});
  CHECK(OneOp("reshape", {x}, DType::I32, {3, 2}).run() == Doubles{1, 2, 3, 4, 5, 6});
  CHECK(OneOp("cast", {f32({3}, {1.9, -300, NAN})}, DType::U8, {3}).run() == Doubles{1, 0, 0});
  CHECK(OneOp("cast", {i32({2}, {300, -1})}, DType::U8, {2}).run() == Doubles{44, 255});
}

TEST_CASE("embedding tells an id outside its table", "[reference]") {
  const Tensor table = f32({3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(OneOp("embedding", {table, i32({2}, {2, 0})}, DType::F32, {2, 2}).run() ==
        Doubles{5, 6, 1, 2});
  OneOp bad("embedding", {table, i32({2}, {0, 3})}, DType::F32, {2, 2});
  bad.run();
  CHECK(bad.status.message ==
        "embedding 'o0' on rank 0: index 3 (element 1 of 'i1') is not in [0, 3)");
}

// --- all ranks ---------------------------------------------------------------

namespace {

// One collective on x[4] of 2 ranks: 1 2 3 4 and 10 20 30 40.
std::vector<Doubles> collective(const std::string& kind, const Extents& out,
                                std::map<std::string, ir::Attr> attrs = {}) {
  GraphMaker g(2);
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {4});
  const auto y = g.tensor("y", TensorKind::Output, DType::F32, exprs(out));
  g.op(kind, {"x"}, {"y"}).attrs = std::move(attrs);
  Reference reference(g.graph);
  REQUIRE(reference.set(0, x, f32({4}, {1, 2, 3, 4})).ok);
  REQUIRE(reference.set(1, x, f32({4}, {10, 20, 30, 40})).ok);
  REQUIRE(reference.run({}).message == "");
  return {reference.get(0, y).doubles(), reference.get(1, y).doubles()};
}
using PerRank = std::vector<Doubles>;

}  // namespace

TEST_CASE("collectives", "[reference]") {
  CHECK(collective("allreduce", {4}) == PerRank{{11, 22, 33, 44}, {11, 22, 33, 44}});
  CHECK(collective("allreduce", {4}, {{"reduce", attr(std::string("avg"))}})[1] ==
        Doubles{5.5, 11, 16.5, 22});
  CHECK(collective("allreduce", {4}, {{"reduce", attr(std::string("min"))}})[1] ==
        Doubles{1, 2, 3, 4});
  CHECK(collective("allgather", {8})[0] == Doubles{1, 2, 3, 4, 10, 20, 30, 40});
  CHECK(collective("reduce_scatter", {2}) == PerRank{{11, 22}, {33, 44}});
  CHECK(collective("alltoall", {4}) == PerRank{{1, 2, 10, 20}, {3, 4, 30, 40}});
  CHECK(collective("broadcast", {4}, {{"root", number(1)}})[0] == Doubles{10, 20, 30, 40});
  CHECK(collective("ring_shift", {4}) == PerRank{{10, 20, 30, 40}, {1, 2, 3, 4}});
  CHECK(collective("ring_shift", {4}, {{"by", number(-2)}}) ==
        PerRank{{1, 2, 3, 4}, {10, 20, 30, 40}});
}

TEST_CASE("round a ring, sums of 16-bit floats are rounded at each rank", "[reference]") {
  const auto sum = [](DType x_type, DType y_type, const char* algorithm, const char* reduce) {
    GraphMaker g(4);
    const auto x = g.tensor("x", TensorKind::Input, x_type, {1});
    const auto y = g.tensor("y", TensorKind::Output, y_type, {1});
    g.op("allreduce", {"x"}, {"y"}).attrs = {{"algorithm", attr(std::string(algorithm))},
                                             {"reduce", attr(std::string(reduce))}};
    Reference reference(g.graph);
    const double values[] = {256, 1, 1, 2};
    for (int r = 0; r < 4; ++r)
      REQUIRE(reference.set(r, x, Tensor::of(x_type, {1}, std::vector<double>{values[r]})).ok);
    REQUIRE(reference.run({}).message == "");
    CHECK(reference.get(0, y).doubles() == reference.get(3, y).doubles());
    return reference.get(0, y).doubles()[0];
  };
  CHECK(sum(DType::BF16, DType::BF16, "oneshot", "sum") == 260);
  CHECK(sum(DType::BF16, DType::BF16, "ring", "sum") == 258);
  CHECK(sum(DType::BF16, DType::BF16, "ring", "avg") == 64.5);
  CHECK(sum(DType::BF16, DType::F32, "ring", "sum") == 260);
  CHECK(sum(DType::F32, DType::BF16, "ring", "sum") == 260);
  CHECK(sum(DType::F16, DType::F16, "ring", "max") == 256);
}

TEST_CASE("a chain of neighbours runs although each rank waits for the one before", "[reference]") {
  GraphMaker g(4);
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {1});
  const auto y = g.tensor("y", TensorKind::Output, DType::F32, {1});
  auto& recv = g.op("recv", {}, {"before"}, DType::F32, {1});
  recv.attrs = {{"src", expr("rank - 1")}, {"if", expr("rank > 0")}};
  g.op("add", {"before", "x"}, {"y"});
  auto& send = g.op("send", {"y"}, {});
  send.attrs = {{"dst", expr("rank + 1")}, {"if", expr("rank < world - 1")}};
  Reference reference(g.graph);
  for (int r = 0; r < 4; ++r) REQUIRE(reference.set(r, x, f32({1}, {std::pow(10, r)})).ok);
  for (int launch = 0; launch < 2; ++launch) {
    REQUIRE(reference.run({}).message == "");
    CHECK(reference.get(0, y).at(0) == 1);
    CHECK(reference.get(3, y).at(0) == 1111);
  }
}

TEST_CASE("sends to oneself, tags, order, and ends that don't meet", "[reference]") {
  GraphMaker g(1);
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {2});
  const auto a = g.tensor("a", TensorKind::Output, DType::F32, {2});
  const auto b = g.tensor("b", TensorKind::Output, DType::F32, {2});
  g.op("mul", {"x"}, {"twice"}).attrs["value"] = number(2);
  g.op("recv", {}, {"a"}).attrs = {{"src", number(0)}, {"tag", number(5)}};
  g.op("send", {"x"}, {}).attrs = {{"dst", number(0)}};
  g.op("send", {"twice"}, {}).attrs = {{"dst", number(0)}, {"tag", number(5)}};
  g.op("recv", {}, {"b"}).attrs = {{"src", number(0)}};
  Reference reference(g.graph);
  REQUIRE(reference.set(0, x, f32({2}, {1, 2})).ok);
  REQUIRE(reference.run({}).message == "");
  CHECK(reference.get(0, a).doubles() == Doubles{2, 4});
  CHECK(reference.get(0, b).doubles() == Doubles{1, 2});

  g.graph.ops.pop_back();
  Reference unmatched(g.graph);
  REQUIRE(unmatched.set(0, x, f32({2}, {1, 2})).ok);
  CHECK_THAT(unmatched.run({}).message,
             Contains("1 sends from rank 0 to rank 0 with tag 0 meet 0 receives"));
}

TEST_CASE("states are kept between launches, and dims pack rows", "[reference]") {
  GraphMaker g;
  g.dim("tokens", 3);
  g.scalar("pos", 0, 6);
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {ir::Expr::var("tokens"), 1});
  const auto cache = g.tensor("cache", TensorKind::State, DType::F32, {6, 1});
  const auto y = g.tensor("y", TensorKind::Output, DType::F32, {ir::Expr::var("tokens"), 1});
  g.op("kv_append", {"cache", "x"}, {"cache"}).attrs["at"] = expr("pos");
  auto& attention = g.op("attention", {"x", "cache", "cache"}, {"y"});
  attention.attrs = {{"head_dim", number(1)},
                     {"causal", attr(true)},
                     {"length", expr("pos + tokens")},
                     {"scale", attr(0.0)}};
  Reference reference(g.graph);
  REQUIRE(reference.set(0, x, f32({3, 1}, {1, 2, 3})).ok);
  REQUIRE(reference.run({{"pos", 0}}).message == "");
  check_near(reference.get(0, y).doubles(), {1, 1.5, 2});
  REQUIRE(reference.set(0, x, f32({1, 1}, {10})).ok);
  CHECK_THAT(reference.run({{"pos", 3}}).message,
             Contains("'x' on rank 0 is [1,1], and this launch takes [3,1]"));
  REQUIRE(reference.run({{"pos", 3}, {"tokens", 1}}).message == "");
  check_near(reference.get(0, y).doubles(), {4});
  CHECK(reference.get(0, y).shape == Extents{1, 1});
  CHECK(reference.get(0, cache).doubles() == Doubles{1, 2, 3, 10, 0, 0});

  CHECK_THAT(reference.run({{"tokens", 1}}).message, Contains("scalar 'pos' has no value"));
  CHECK_THAT(reference.run({{"tokens", 1}, {"pos", 6}}).message,
             Contains("scalar 'pos' is 6, outside [0, 6)"));
  CHECK_THAT(reference.run({{"tokens", 4}, {"pos", 0}}).message,
             Contains("dim 'tokens' is 4, outside 1 to 3"));
  CHECK_THAT(reference.run({{"q", 4}, {"pos", 0}}).message, Contains("no dim or scalar 'q'"));
  REQUIRE(reference.set(0, x, f32({3, 1}, {1, 2, 3})).ok);
  CHECK_THAT(reference.run({{"pos", 5}}).message,
             Contains("kv_append 'cache' on rank 0: rows 5 to 8 are outside"));
  CHECK(reference.get(0, cache).doubles() == Doubles{1, 2, 3, 10, 0, 0});
}

TEST_CASE("a read of a state sees the latest earlier write", "[reference]") {
  GraphMaker g;
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {1, 1});
  g.tensor("s", TensorKind::State, DType::F32, {1, 1});
  const auto before = g.tensor("before", TensorKind::Output, DType::F32, {1, 1});
  const auto after = g.tensor("after", TensorKind::Output, DType::F32, {1, 1});
  g.op("copy", {"s"}, {"before"});
  g.op("add", {"s", "x"}, {"s"});
  g.op("copy", {"s"}, {"after"});
  Reference reference(g.graph);
  REQUIRE(reference.set(0, x, f32({1, 1}, {5})).ok);
  REQUIRE(reference.run({}).ok);
  REQUIRE(reference.run({}).ok);
  CHECK(reference.get(0, before).at(0) == 5);
  CHECK(reference.get(0, after).at(0) == 10);
}

TEST_CASE("temporaries are rounded to their dtype", "[reference]") {
  GraphMaker g;
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {1});
  const auto y = g.tensor("y", TensorKind::Output, DType::F32, {1});
  g.op("add", {"x"}, {"h"}, DType::BF16).attrs["value"] = attr(1.0 / 256);
  g.op("sub", {"h"}, {"y"}).attrs["value"] = number(1);
  Reference reference(g.graph);
  REQUIRE(reference.set(0, x, f32({1}, {1})).ok);
  REQUIRE(reference.run({}).ok);
  CHECK(reference.get(0, y).at(0) == 0);
}

TEST_CASE("binding the wrong thing is refused", "[reference]") {
  GraphMaker g;
  const auto x = g.tensor("x", TensorKind::Input, DType::F32, {2, 2});
  const auto y = g.tensor("y", TensorKind::Output, DType::F32, {2, 2});
  g.op("copy", {"x"}, {"y"});
  Reference reference(g.graph);
  CHECK_THAT(reference.set(0, x, f32({2, 3}, Doubles(6))).message,
             Contains("'x' is f32[2,2], not f32[2,3]"));
  CHECK_THAT(reference.set(0, x, i32({2, 2}, Doubles(4))).message, Contains("not i32[2,2]"));
  CHECK_THAT(reference.set(0, y, f32({2, 2}, Doubles(4))).message, Contains("not an input"));
  CHECK_THAT(reference.run({}).message, Contains("'x' is not bound on rank 0"));
}
