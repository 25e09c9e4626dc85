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
  // At most as many loads as a thread has vectors of a tile: unneeded registers would make the
  // whole kernel spill.
  constexpr i64 kVectors = (C::BM * (C::BN / V) + kConsumers - 1) / kConsumers;
  constexpr int U = (int)least(loads_ahead(V * (int)sizeof(X)), kVectors);
  for (u32 i = (u32)consumer_thread(); i < vectors; i += U * kConsumers) {
    // For each vector its number, its row's id, and its elements; behind the last vector the last
    // one is repeated.
    u32 at[U];
    i64 id[U];
    Elements<X, V> v[U];
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      const u32 own = i + (u32)(u * kConsumers);
      at[u] = own < vectors ? own : vectors - 1;
      id[u] = gload(ids + r0 + at[u] / wide);
    }
    MACO_UNROLL
    for (int u = 0; u < U; ++u)
      if (id[u] >= 0 && id[u] < limit)
        v[u].load(table + id[u] * C::N + c0 + (i64)(at[u] % wide) * V);
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      if (i + (u32)(u * kConsumers) >= vectors) break;
      const i64 row = r0 + at[u] / wide, column = c0 + (i64)(at[u] % wide) * V;
      if (id[u] >= 0 && id[u] < limit) {
        convert<typename C::Y>(v[u]).store(y + row * C::N + column);
      } else if (column == c0) {  // one of the row's threads reports it
        ctx.bad_index(id[u], limit);
      }
    }
  }
}

}  // namespace ops
}  // namespace maco
