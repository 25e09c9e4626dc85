// matmul, norms, softmax, reductions, rope, attention: shape rules and tiles. ops_b_lanes_test.cpp
// runs their device functions.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "tests/catch.h"

using maco::ir::DType;
using maco::ir::Expr;
using maco::ir::TensorKind;
namespace ir = maco::ir;
namespace ops = maco::ops;

namespace {

// A graph of one op on inputs of given shapes, its inference and its tiles.
struct OneOp {
  ir::Graph graph;
  ir::Diagnostics diagnostics;
  ir::Program program;
  bool inferred = false;

  OneOp(std::string kind, const std::vector<std::pair<DType, ir::Shape>>& inputs,
        std::map<std::string, ir::AttrValue> attrs = {}, std::vector<ir::Dim> dims = {}) {
    graph.name = "g";
    graph.dims = std::move(dims);
    ir::Op op;
    op.kind = std::move(kind);
    op.name = "y";
    for (size_t i = 0; i < inputs.size(); ++i) {
      ir::Tensor t;
      t.name = fmt::format("in{}", i);
      t.kind = i == 1 ? TensorKind::Param : TensorKind::Input;
      t.dtype = inputs[i].first;
      t.shape = inputs[i].second;
      op.in.push_back(ir::id_of<ir::TensorId>(graph.tensors.size()));
      graph.tensors.push_back(t);
    }
    ir::Tensor y;
    y.name = "y";
    op.out.push_back(ir::id_of<ir::TensorId>(graph.tensors.size()));
    graph.tensors.push_back(y);
    for (auto& [name, value] : attrs) op.attrs[name] = {value, {}};
    graph.ops.push_back(op);
    inferred = ops::infer(graph, diagnostics);
  }
  std::string message() const {
    return diagnostics.all().empty() ? "" : diagnostics.all()[0].message;
  }
  const ir::Tensor& result() const { return graph.tensors.back(); }

  void tile(const char* target) {
    const auto& machine = *maco::cost::find_machine(target);
    program.uses = maco::cost::uses_of(machine, machine.pages);
    std::vector<ir::BufferId> ids;
    for (const ir::Tensor& t : graph.tensors) {
      ir::Buffer b;
      b.name = t.name;
      b.kind = t.kind == TensorKind::Temp ? ir::BufferKind::Temp : ir::BufferKind::Input;
      b.dtype = t.dtype;
      b.rows = Expr(1);
      const bool vector = t.shape.size() == 1;
      if (!vector || !t.shape[0].is_constant())
        for (size_t a = 0; a + (vector ? 0 : 1) < t.shape.size(); ++a)
          b.rows = ir::canonical(b.rows * t.shape[a]);
      b.max_rows = ir::bounds(b.rows, [&](std::string_view n) { return graph.range_of(n); })->hi;
      b.cols = t.shape.back().constant().value_or(1);
      ids.push_back(ir::id_of<ir::BufferId>(program.buffers.size()));
      program.buffers.push_back(b);
    }
    ops::TileContext context(graph, ir::id_of<ir::OpId>(0), program, machine, ids, diagnostics);
    ops::find_op(graph.ops[0].kind)->tile(context);
  }

  // How often each element of buffer `b` is written (or read) by all tasks together.
  std::vector<int> touched(size_t b, bool writes) const {
    std::vector<int> count(static_cast<size_t>(program.buffers[b].max_elements()), 0);
    for (const ir::Task& t : program.tasks)
      for (const ir::Access& a : t.accesses)
        if (index(a.region.buffer) == b && a.writes() == writes)
          for (int64_t r = a.region.r0; r < a.region.r1; ++r)
            for (int64_t c = a.region.c0; c < a.region.c1; ++c)
              ++count.at(static_cast<size_t>(r * a.region.pitch + c));
    return count;
  }
  bool result_is_cut_exactly() const {
    const auto n = touched(program.buffers.size() - 1, true);
    return std::all_of(n.begin(), n.end(), [](int v) { return v == 1; });
  }
  bool reads_all(size_t b) const {
    const auto n = touched(b, false);
    return std::all_of(n.begin(), n.end(), [](int v) { return v >= 1; });
  }
  int64_t number(const char* name) const {
    for (const ir::Param& p : program.calls[0].params)
      if (p.name == name) return std::get<int64_t>(p.value);
    return -1;
  }
  bool flag(const char* name) const {
    for (const ir::Param& p : program.calls[0].params)
      if (p.name == name) return std::get<bool>(p.value);
    return false;
  }
};

ir::Shape shape(std::vector<int64_t> extents) { return {extents.begin(), extents.end()}; }
const std::vector<const char*> kTargets = {"cpu", "sm_90a", "sm_75"};

}  // namespace

TEST_CASE("tiles of a product cut the result exactly and read what they need") {
  std::mt19937 random(1);
  const auto pick = [&](std::vector<int64_t> v) { return v[random() % v.size()]; };
  for (int i = 0; i < 120; ++i) {
    const int64_t m = pick({1, 2, 3, 7, 8, 9, 16, 17, 61, 64, 65, 130, 257}),
                  n = pick({1, 2, 7, 15, 16, 33, 64, 100, 509, 1024, 1100});
    const int64_t k = pick({1, 3, 8, 17, 64, 127});
    const bool transpose = random() % 2, bias = random() % 2;
    const auto type = std::vector<DType>{DType::F32, DType::BF16, DType::F8E4M3}[random() % 3];
    std::vector<std::pair<DType, ir::Shape>> inputs = {
        {type, shape({m, k})}, {type, transpose ? shape({n, k}) : shape({k, n})}};
    if (bias) inputs.push_back({type, shape({n})});
    OneOp op("matmul", inputs, {{"transpose_b", transpose}});
    REQUIRE(op.inferred);
    CHECK(op.result().shape == shape({m, n}));
    const char* target = kTargets[random() % kTargets.size()];
    op.tile(target);
    INFO("m " << m << " n " << n << " k " << k << " transpose " << transpose << " " << target);
    CHECK(op.result_is_cut_exactly());
    for (size_t b = 0; b < inputs.size(); ++b) CHECK(op.reads_all(b));
    // What matmul.cuh takes for granted.
    const int64_t bm = op.number("BM"), bn = op.number("BN"),
                  page = op.program.calls[0].loads[0].page_bytes;
    const int64_t few = maco::functions::matmul_few_rows(type, type, k, transpose,
                                                         *maco::cost::find_machine(target));
    const bool in_blocks = op.flag("blocks"),
               on_tensor_cores = op.program.calls[0].loads.size() == 2 && !in_blocks;
    if (m <= few && !(on_tensor_cores && type == DType::F8E4M3)) {
      CHECK(bm <= few);
      CHECK(bn % 8 == 0);
    } else {
      CHECK(bm % 16 == 0);
      CHECK(bn % 16 == 0);
      if (in_blocks)  // across K 128 bytes of a row of b
        CHECK((transpose || bn * ir::size_of(type) % 128 == 0));
      else if (on_tensor_cores)  // 128 bytes a row of a block
        CHECK((bn % 64 == 0 && (bn <= page / 128 || bn % (page / 128) == 0)));
      else
        CHECK((transpose ? page / bn >= 48 : page / (bn * ir::size_of(type)) >= 8));
    }
    // A task reads whole rows of a and whole columns of b for what it writes.
    for (const ir::Task& t : op.program.tasks) {
      if (op.program[t.call].function != "matmul") continue;  // adds up parts
      const ir::Region &a = t.accesses[0].region, &b = t.accesses[1].region,
                       &y = t.accesses.back().region;
      CHECK((a.r0 == y.r0 && a.r1 == y.r1 && a.c0 == 0 && a.c1 == k));
      CHECK((transpose ? b.r0 == y.c0 && b.r1 == y.c1 && b.c1 == k
                       : b.c0 == y.c0 && b.c1 == y.c1 && b.r1 == k));
    }
  }
}

TEST_CASE("a product for decoding gives all SMs about the same") {
  for (int64_t n : {8192, 28672, 1024, 128256}) {
    ops::MatmulShape s;
    s.N = n;
    s.K = 8192;
    s.transpose_b = true;
    const auto t = ops::choose_matmul_tiles(
        s, maco::functions::choose_matmul_method(s, *maco::cost::find_machine("sm_90a")),
        *maco::cost::find_machine("sm_90a"), 132);
    REQUIRE(t);
    const int64_t tiles = (n + t->BN - 1) / t->BN, most = (tiles + 131) / 132 * t->BN;
    INFO("N " << n << " BN " << t->BN);
    CHECK(static_cast<double>(n) / 132 / static_cast<double>(most) > 0.93);
  }
}

namespace {
// [rows,K] x [N,K], of bf16.
ops::MatmulShape product_of(int64_t rows, int64_t N, int64_t K) {
  ops::MatmulShape s;
  s.min_rows = s.max_rows = s.typical_rows = rows;
  s.plan_rows = {rows, rows};
  s.N = N;
  s.K = K;
  s.transpose_b = true;
  return s;
}
}  // namespace

TEST_CASE("tiles share K where there are too few, whatever SMs compute") {
  const auto& h200 = *maco::cost::find_machine("sm_90a");
  const auto depth = [&](int64_t rows, int64_t n, int64_t k, int32_t sms) {
    const ops::MatmulShape s = product_of(rows, n, k);
    const auto tiles =
        ops::choose_matmul_tiles(s, maco::functions::choose_matmul_method(s, h200), h200, sms);
    REQUIRE(tiles);
    CHECK(ops::refuse_matmul(s, maco::functions::choose_matmul_method(s, h200), *tiles, h200)
              .empty());
    return tiles->BK;
  };
  CHECK(depth(128, 8192, 8192, 132) == 4096);
  CHECK(depth(64, 1280, 8192, 132) > 0);
  CHECK(depth(1024, 8192, 8192, 132) == 0);
  CHECK(depth(8, 8192, 8192, 132) == 0);
  for (int64_t rows : {33, 100, 128, 200, 1000})
    for (int64_t n : {64, 1280, 8192})
      for (int64_t k : {64, 72, 1000, 8192}) CHECK(depth(rows, n, k, 132) == depth(rows, n, k, 9));
  // Rows that pipelining cut are summed as those of the whole op.
  ops::MatmulShape s;
  s.min_rows = s.max_rows = s.typical_rows = 64;
  s.plan_rows = {1024, 1024};
  s.N = s.K = 8192;
  s.transpose_b = true;
  CHECK(
      ops::choose_matmul_tiles(s, maco::functions::choose_matmul_method(s, h200), h200, 132)->BK ==
      0);
}

TEST_CASE("a product that sends has whole tiles, or halves that mates have") {
  const auto& h200 = *maco::cost::find_machine("sm_90a");
  int halved = 0;
  for (int64_t rows : {64, 70, 128, 256, 512})
    for (int64_t n : {1280, 4096, 7000, 8184, 8192})
      for (int64_t k : {2048, 4096, 8192}) {
        ops::MatmulShape s = product_of(rows, n, k);
        s.sent = true;
        for (int32_t sms : {132, 100, 37}) {
          const auto t =
              ops::choose_matmul_tiles(s, maco::functions::matmul_method("wgmma"), h200, sms);
          INFO(rows << " x " << n << " x " << k << " on " << sms);
          if (!t) continue;  // parts that tasks add up
          CHECK(ops::may_send(s, maco::functions::matmul_method("wgmma"), *t, h200));
          if (ops::matmul_parts(k, *t) == 2) ++halved;
        }
      }
  CHECK(halved > 0);
}

// docs/benchmarks/logs/products-halved-h200.txt has their times and those of others.
TEST_CASE("tiles are those that took least") {
  const auto& h200 = *maco::cost::find_machine("sm_90a");
  struct Measured {
    int64_t rows, N, K;
    ops::MatmulTiles tiles;
  };
  for (const Measured& m : {Measured{64, 8192, 1024, {64, 64, 0}},
                            {64, 8192, 2048, {64, 128, 1024}},
                            {128, 2560, 2560, {64, 128, 1280}},
                            {128, 4096, 4096, {64, 128, 2048}},
                            {512, 2048, 2048, {128, 128, 1024}},
                            {1024, 5120, 2560, {128, 192, 0}},
                            {256, 2048, 8192, {128, 128, 2048}},
                            {512, 1024, 8192, {128, 128, 2048}},
                            {1024, 5120, 27648, {128, 256, 6912}}}) {
    const ops::MatmulShape s = product_of(m.rows, m.N, m.K);
    const auto t =
        ops::choose_matmul_tiles(s, maco::functions::matmul_method("wgmma"), h200, h200.sms);
    INFO(m.rows << " x " << m.N << " x " << m.K);
    REQUIRE(t);
    CHECK(t->BM == m.tiles.BM);
    CHECK(t->BN == m.tiles.BN);
    CHECK(t->BK == m.tiles.BK);
  }
}

TEST_CASE("floats of 8 bits go to tensor cores that have them") {
  ops::MatmulShape s;
  s.min_rows = s.max_rows = s.typical_rows = 256;
  s.plan_rows = {256, 256};
  s.N = s.K = 4096;
  s.transpose_b = true;
  s.a = s.b = DType::F8E4M3;
  const auto method = [&](const char* target) {
    return maco::functions::choose_matmul_method(s, *maco::cost::find_machine(target)).name();
  };
  CHECK(method("sm_90a") == "wgmma");
  CHECK(method("sm_89") == "mma");
  CHECK(method("sm_80") == "block");
  s.min_rows = s.max_rows = s.typical_rows = 1;
  s.plan_rows = {1, 1};
  CHECK(method("sm_90a") == "wgmma");
  CHECK(method("sm_89") == "dot");
  s.min_rows = s.max_rows = s.typical_rows = 256;
  s.plan_rows = {256, 256};
  const auto refused = [&](const char* of, ops::MatmulTiles tiles) {
    return ops::refuse_matmul(s, maco::functions::matmul_method(of), tiles,
                              *maco::cost::find_machine("sm_90a"));
  };
  CHECK(refused("wgmma", {128, 128}) == "");
  CHECK(refused("wgmma", {128, 256}) ==
        "a tile of method 'wgmma' of f8 has at most 16384 elements, not 32768");
  CHECK(refused("wgmma", {128, 128, 192}) ==
        "a tile has all of K or a multiple of 128 elements, at least 1/8 of 4096, not 192");
  s.y = DType::F32;
  CHECK(refused("wgmma", {128, 128}) ==
        "method 'wgmma' multiplies f8e4m3 for results of less than 32 bits, not for f32");
  CHECK(method("sm_90a") == "block");
  s.y = DType::F8E4M3;
  s.b = DType::F8E5M2;
  CHECK(refused("mma", {128, 128}) ==
        "method 'mma' multiplies bf16, f16, f8e4m3 or f8e5m2 with the same, not f8e4m3 with "
        "f8e5m2");
  s.b = s.a;
  s.transpose_b = false;
  CHECK(refused("mma", {128, 128}) == "method 'mma' multiplies f8e4m3 only with transpose_b");
}

TEST_CASE("tiles of ops over rows cut the result exactly") {
  std::mt19937 random(2);
  const auto pick = [&](std::vector<int64_t> v) { return v[random() % v.size()]; };
  for (int i = 0; i < 60; ++i) {
    const int64_t m = pick({1, 2, 7, 64, 333, 1000}), n = pick({1, 2, 6, 37, 128, 1000, 3001});
    const char* target = kTargets[random() % kTargets.size()];
    for (const char* kind : {"rmsnorm", "layernorm", "softmax", "sum", "mean", "max", "argmax"}) {
      const std::string name = kind;
      std::vector<std::pair<DType, ir::Shape>> inputs = {
          {DType::BF16, random() % 2 ? shape({m, n}) : shape({m, 1, n})}};
      if (name == "rmsnorm" || name == "layernorm") inputs.push_back({DType::BF16, shape({n})});
      if (name == "layernorm") inputs.push_back({DType::F32, shape({n})});
      OneOp op(name, inputs);
      INFO(name << " m " << m << " n " << n << " " << target << " " << op.message());
      REQUIRE(op.inferred);
      op.tile(target);
      CHECK(op.result_is_cut_exactly());
      CHECK(op.reads_all(0));
    }
    OneOp rope("rope", {{DType::F32, shape({m, 6 * n})}, {DType::I32, shape({m})}},
               {{"head_dim", Expr(6)}});
    REQUIRE(rope.inferred);
    rope.tile(target);
    CHECK(rope.result_is_cut_exactly());
    CHECK(rope.reads_all(1));
    OneOp tables("rope",
                 {{DType::F32, shape({m, 6 * n})},
                  {DType::I32, shape({m})},
                  {DType::BF16, shape({9, 6})},
                  {DType::BF16, shape({9, 6})}},
                 {{"head_dim", Expr(6)}});
    REQUIRE(tables.inferred);
    tables.tile(target);
    CHECK(tables.result_is_cut_exactly());
    for (int input = 1; input < 4; ++input) CHECK(tables.reads_all(input));
    OneOp frequencies(
        "rope",
        {{DType::F32, shape({m, 6 * n})}, {DType::I32, shape({m})}, {DType::F32, shape({2})}},
        {{"head_dim", Expr(6)}, {"rotary_dim", Expr(4)}});
    REQUIRE(frequencies.inferred);
    frequencies.tile(target);
    CHECK(frequencies.result_is_cut_exactly());
    for (int input = 1; input < 3; ++input) CHECK(frequencies.reads_all(input));
    const int64_t d = pick({1, 64, 80, 2048}), heads = pick({1, 2, 6}), keys = pick({1, 31, 200});
    OneOp attention("attention",
                    {{DType::F32, shape({m, 2 * heads * d})},
                     {DType::F32, shape({keys, heads * d})},
                     {DType::F32, shape({keys, heads * d})}},
                    {{"head_dim", Expr(d)}, {"causal", random() % 2 == 0}});
    REQUIRE(attention.inferred);
    attention.tile(target);
    CHECK(attention.result_is_cut_exactly());
    CHECK(attention.reads_all(0));
    CHECK(attention.reads_all(1));
  }
}

TEST_CASE("rows that depend on dims, and a lone axis that does") {
  const ir::Dim tokens{"tokens", 1, 100, {}};
  OneOp op("matmul",
           {{DType::BF16, {Expr::var("tokens"), Expr(64)}}, {DType::BF16, shape({48, 64})}},
           {{"transpose_b", true}}, {tokens});
  REQUIRE(op.inferred);
  CHECK(op.result().shape == ir::Shape{Expr::var("tokens"), Expr(48)});
  op.tile("sm_90a");
  CHECK(op.result_is_cut_exactly());
  CHECK(op.program.values.size() == 1);
  for (const char* kind : {"softmax", "sum", "argmax"}) {
    OneOp lone(kind, {{DType::F32, {Expr::var("tokens")}}}, {}, {tokens});
    REQUIRE(lone.inferred);
    lone.tile("sm_90a");
    CHECK(lone.program.tasks.size() == 1);
    CHECK(lone.result_is_cut_exactly());
  }
}

TEST_CASE("shapes and types are refused with the reason") {
  const auto refused = [](const OneOp& op) { return op.inferred ? "accepted" : op.message(); };
  CHECK(
      refused(
          OneOp("matmul", {{DType::BF16, shape({64, 1024})}, {DType::BF16, shape({2048, 512})}})) ==
      "'matmul' cannot multiply a[64,1024] by b[2048,512]: the inner sizes differ (1024 and 2048)");
  CHECK(refused(OneOp("matmul",
                      {{DType::BF16, shape({64, 1024})}, {DType::BF16, shape({2048, 1024})}})) ==
        "'matmul' cannot multiply a[64,1024] by b[2048,1024]: the inner sizes differ (1024 and "
        "2048); with 'transpose_b' they agree");
  CHECK(refused(OneOp("matmul", {{DType::I32, shape({4, 4})}, {DType::F32, shape({4, 4})}})) ==
        "'matmul' takes floats of any types, or i32 with i32, not i32 with f32");
  CHECK(refused(OneOp("matmul", {{DType::F32, shape({4, 4})}, {DType::F32, shape({1, 4, 4})}})) ==
        "'matmul' needs a matrix of 2 axes on the right, but in1[1,4,4] has 3");
  CHECK(refused(OneOp("mean", {{DType::I32, shape({4, 4})}})) ==
        "'mean' takes floats, but 'in0' is i32; use 'sum', which is exact for integers");
  CHECK(refused(OneOp("argmax", {{DType::U8, shape({1, 2147483648})}})) ==
        "'argmax' gives i32, but the rows of in0[1,2147483648] have up to 2147483648 elements");
  CHECK(OneOp("argmax", {{DType::U8, shape({1, 2147483647})}}).inferred);
  CHECK(refused(OneOp("rmsnorm", {{DType::F32, shape({4, 8})}, {DType::F32, shape({4})}})) ==
        "'rmsnorm' of in0[4,8] needs 'in1' of shape [8], but it has [4]");
  CHECK(refused(OneOp("rope", {{DType::F32, shape({4, 8})}}, {{"head_dim", Expr(8)}})) ==
        "'rope' takes 'position' or a second input with positions, and has neither");
  CHECK(refused(OneOp("rope", {{DType::F32, shape({4, 9})}},
                      {{"head_dim", Expr(3)}, {"position", Expr(0)}})) ==
        "'head_dim' of 'rope' must be even and at least 2, not 3");
  const auto turned = [](DType cosines, const ir::Shape& rows, const ir::Shape& others,
                         std::map<std::string, ir::AttrValue> all) {
    all.emplace("head_dim", Expr(8));
    return OneOp("rope", {{DType::F32, shape({4, 8})}, {cosines, rows}, {DType::F32, others}}, all,
                 {ir::Dim{"n", 1, 17, {}}});
  };
  CHECK(refused(turned(DType::I32, shape({9, 8}), shape({9, 8}), {{"position", Expr(0)}})) ==
        "'rope' takes floats, but 'in1' is i32");
  CHECK(refused(turned(DType::BF16, shape({9, 8}), shape({9, 8}), {{"position", Expr(0)}})) ==
        "'rope' takes cosines and sines of one type and shape, but in1[9,8] and in2[9,8] differ");
  CHECK(refused(turned(DType::F32, shape({9, 8}), shape({9, 4}), {{"position", Expr(0)}})) ==
        "'rope' takes cosines and sines of one type and shape, but in1[9,8] and in2[9,4] differ");
  CHECK(refused(turned(DType::F32, shape({9, 6}), shape({9, 6}), {{"position", Expr(0)}})) ==
        "'rope' of heads of 8 takes cosines of 4 or 8 columns, a row for each position, but "
        "in1[9,6] has [9,6]");
  CHECK(refused(turned(DType::F32, shape({9, 8}), shape({9, 8}),
                       {{"position", Expr(0)}, {"theta", 100.0}})) ==
        "'theta' says how 'rope' works out angles, but their cosines and sines are operands here");
  CHECK(refused(turned(DType::F32, shape({9, 8}), shape({9, 8}), {{"position", Expr(6)}})) ==
        "positions [6, 10) end at up to 10, but in1[9,8] has 9 rows");
  CHECK(
      refused(turned(DType::F32, shape({20, 4}), shape({20, 4}), {{"position", Expr::var("n")}})) ==
      "positions [n, n + 4) end at up to 21, but in1[20,4] has 20 rows");
  CHECK(refused(turned(DType::F32, shape({20, 4}), shape({20, 4}),
                       {{"position", Expr::var("n") - Expr(2)}})) ==
        "'position' is 'n - 2', which may be negative, but in1[20,4] has no such rows");
  CHECK(
      turned(DType::F32, shape({21, 4}), shape({21, 4}), {{"position", Expr::var("n")}}).inferred);
  // Frequencies alone with `position`, or behind positions (the diagnostics' corpus has the rest).
  const auto by_frequencies = [](const ir::Shape& f, std::map<std::string, ir::AttrValue> all) {
    all.emplace("head_dim", Expr(8));
    return OneOp("rope", {{DType::F32, shape({4, 8})}, {DType::F32, f}}, all);
  };
  CHECK(by_frequencies(shape({4}), {{"position", Expr(1)}}).inferred);
  CHECK(by_frequencies(shape({1}), {{"position", Expr(1)}, {"rotary_dim", Expr(2)}}).inferred);
  CHECK(refused(by_frequencies(shape({3}), {{"position", Expr(1)}})) ==
        "'rope' takes a frequency in f32 for each pair of elements that turn, [4], but in1[3] is "
        "f32");
  CHECK(refused(by_frequencies(shape({4}), {})) ==
        "'rope' takes positions in i32, but 'in1' is f32; frequencies come behind them, or with "
        "'position'");
  const auto attention = [](int64_t q, int64_t kv, Expr length) {
    return OneOp(
        "attention",
        {{DType::F32, shape({1, q})}, {DType::F32, shape({16, kv})}, {DType::F32, shape({16, kv})}},
        {{"head_dim", Expr(8)}, {"length", length}}, {ir::Dim{"n", 1, 17, {}}});
  };
  CHECK(refused(attention(24, 16, Expr(4))) ==
        "'attention' needs a multiple of the heads of 'in1' (2) in 'in0', which has 3");
  CHECK(refused(attention(16, 16, Expr::var("n"))) ==
        "'length' of 'attention' is n, which may be 17, but 'in1' has 16 rows");
  CHECK(refused(attention(16, 16, Expr::var("n") - Expr(1))) ==
        "'length' of 'attention' is n - 1, which may be 0, but must be at least 1");
}
