// embedding.cuh: row i of the result is row ids[i] of the table.
//
// C: X, Y; rows of the result, limit rows of the table, N columns; BM x BN a tile; V elements at
// once. Operands: table, ids, y.

namespace maco {
namespace ops {

template <class C>
MACO_OP void embedding(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  constexpr i64 across = (C::N + C::BN - 1) / C::BN;
  constexpr int V = (int)C::V;
  const X* table = args.ptr<X>(0);
  const i32* ids = args.ptr<i32>(1);
  typename C::Y* y = args.ptr<typename C::Y>(2);
  const i64 r0 = tile / across * C::BM, c0 = tile % across * C::BN;
  const i64 left = C::rows::get(ctx) - r0, limit = C::limit::get(ctx);
  const i64 rows = left < C::BM ? left : C::BM;
  const i64 columns = C::N % C::BN == 0 || C::N - c0 > C::BN ? C::BN : C::N - c0;
  const u32 wide = (u32)(columns / V);
  const u32 vectors = rows <= 0 ? 0 : (u32)rows * wide;
  for (u32 i = (u32)consumer_thread(); i < vectors; i += kConsumers) {
    const i64 row = r0 + i / wide, column = c0 + (i64)(i % wide) * V;
    const i64 id = gload(ids + row);
    if (id < 0 || id >= limit) {
      // One of the row's threads reports it.
      if (column == c0) ctx.bad_index(id, limit);
      continue;
    }
    Elements<X, V> v;
    v.load(table + id * C::N + column);
    convert<typename C::Y>(v).store(y + row * C::N + column);
  }
}

}  // namespace ops
}  // namespace maco
