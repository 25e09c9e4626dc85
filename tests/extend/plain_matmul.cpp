// plain: a method of matmul. Each element of a tile is summed by one thread, over K in order. A
// graph asks for it by the attribute by_plain, which a rule of `fuse` turns into the method.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/matmul_method.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/fuse/rules.h"
#include "tests/extend/extension.h"

namespace maco::extend {

namespace {

using functions::MatmulMethod;
using functions::MatmulShape;
using functions::MatmulTiles;

constexpr int64_t kMostRows = 16, kColumns = 8;  // of a tile

constexpr const char* kSource = R"(// matmul, method plain: a thread sums an element.
namespace maco::ops {
struct ByPlain : AnyMethod {
  template <class C>
  static MACO_FN void multiply(Context& ctx, const Args& args, u32 tile) {
    using X = typename C::X;
    using W = typename C::W;
    const MatmulTile<C> t(ctx, tile);
    const X* const a = args.template ptr<const X>(0) + t.row * C::K;
    const W* const b = args.template ptr<const W>(1);
    const i64 cols = t.end - t.col;
    for (i64 i = consumer_thread(); i < t.rows * cols; i += kConsumers) {
      const i64 row = i / cols, col = t.col + i % cols;
      AccOf<X> sum = AccOf<X>(0);
      for (i64 k = 0; k < C::K; ++k)
        sum = fn::mul_add(to_acc(gload(a + row * C::K + k)),
                          to_acc(gload(b + (C::transpose_b ? col * C::K + k : k * C::N + col))),
                          sum);
      matmul_store(t, args, row, col, sum);
    }
  }
};
}  // namespace maco::ops
)";

std::vector<MatmulTiles> tiles(const MatmulShape& s, const MatmulMethod&, const cost::Machine&) {
  std::vector<MatmulTiles> all;
  for (int64_t bm = 1; bm <= kMostRows && bm < 2 * s.max_rows; bm *= 2)
    for (int64_t bn = kColumns; bn <= 64 && bn < s.N + kColumns; bn *= 2) all.push_back({bm, bn});
  return all;
}

std::string refuse(const MatmulShape& s, const MatmulMethod& method, const MatmulTiles& t,
                   const cost::Machine&) {
  if (!ir::is_float(s.a) || !ir::is_float(s.b))
    return fmt::format("method '{}' multiplies floats, not {} with {}", method.name(),
                       ir::name(s.a), ir::name(s.b));
  if (t.BM > kMostRows || t.BN % kColumns != 0)
    return fmt::format(
        "a tile of method '{}' has up to {} rows and a multiple of {} columns, not "
        "{} and {}",
        method.name(), kMostRows, kColumns, t.BM, t.BN);
  return "";
}

// Nothing is kept: each element reads its row of a and its column of b again.
cost::Work work(const functions::MatmulTile& t, const cost::Machine&) {
  const auto elements = static_cast<double>(std::min(t.BM, t.rows) * t.BN);
  const auto k = static_cast<double>(t.K);
  return {.bytes = elements * k * static_cast<double>(t.a_bytes + t.b_bytes),
          .multiply_adds = elements * k,
          .fixed_microseconds = 0.5};
}

bool take_plain(ir::Graph& graph, passes::PassContext& context) {
  const functions::Method& plain = functions::matmul_method("plain").code;
  for (ir::Op& op : graph.ops) {
    if (op.kind != "matmul" || !ops::attr_flag(op, "by_plain", false)) continue;
    std::string why;
    for (const ops::StageUse& use : ops::matmul_stages_of(op))
      if (!functions::takes_stage(plain, use.stage->name))
        why = fmt::format("it does '{}' besides", use.stage->name);
    if (why.empty()) op.attrs["method"] = {plain.name, op.loc};
    context.fused(why.empty() ? "plain products" : "no plain product: " + why, op.name);
  }
  return true;
}

}  // namespace

std::string register_plain_matmul() {
  if (std::string why = ops::register_matmul_method({.code = {.function = "matmul",
                                                              .name = "plain",
                                                              .code = "ops::ByPlain",
                                                              .source = {{}, kSource},
                                                              .takes = {"Order"}},
                                                     .tiles = tiles,
                                                     .refuse = refuse,
                                                     .work = work});
      !why.empty())
    return why;
  ops::add_attrs("matmul", {{"by_plain", ops::AttrType::Bool, false, "false", {}, false}});
  return passes::register_fuse_rule(
      {.name = "plain", .summary = "matmuls whose graph asks for plain sums", .fold = take_plain});
}

}  // namespace maco::extend
