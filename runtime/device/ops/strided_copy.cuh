// strided_copy.cuh: moves a box of elements: y[out_offset + sum of i * out] = x[in_offset + sum of
// i * in] over four axes.
//
// C: X, Y; extents rows, E1, E2, E3; B0..B3 a tile; strides in0..in3, out0..out3; offsets in_offset
// * in_unit, out_offset * out_unit;
//    V elements at once along axis 3.
// Operands: x, y, which do not overlap.

namespace maco {
namespace ops {

template <class C>
struct StridedTile {
  i64 lo[4];
  u32 vectors;  // of whole blocks of axes 1 to 3; those that reach beyond an extent are skipped

  MACO_FN StridedTile(const Context& ctx, u32 tile) {
    constexpr u32 T1 = (C::E1 + C::B1 - 1) / C::B1, T2 = (C::E2 + C::B2 - 1) / C::B2,
                  T3 = (C::E3 + C::B3 - 1) / C::B3;
    lo[3] = tile % T3 * C::B3;
    lo[2] = tile / T3 % T2 * C::B2;
    lo[1] = tile / (T3 * T2) % T1 * C::B1;
    lo[0] = tile / (T3 * T2 * T1) * C::B0;
    const i64 left = C::rows::get(ctx) - lo[0];
    const i64 rows = left < C::B0 ? left : C::B0;
    vectors = rows <= 0 ? 0 : (u32)(rows * (C::B1 * C::B2 * (C::B3 / C::V)));
  }
  // Where vector i begins on both sides; false if it lies beyond an extent.
  MACO_FN bool locate(u32 i, i64& in, i64& out) const {
    constexpr u32 W = C::B3 / C::V;
    const i64 i3 = lo[3] + i % W * C::V;
    const u32 r = i / W;
    const i64 i2 = lo[2] + r % (u32)C::B2;
    const i64 i1 = lo[1] + r / (u32)C::B2 % (u32)C::B1;
    const i64 i0 = lo[0] + r / (u32)(C::B2 * C::B1);
    in = i0 * C::in0 + i1 * C::in1 + i2 * C::in2 + i3 * C::in3;
    out = i0 * C::out0 + i1 * C::out1 + i2 * C::out2 + i3 * C::out3;
    return (C::E1 % C::B1 == 0 || i1 < C::E1) && (C::E2 % C::B2 == 0 || i2 < C::E2) &&
           (C::E3 % C::B3 == 0 || i3 < C::E3);
  }
};

template <class C>
MACO_OP void strided_copy(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  // Twice as many as others: there is nothing else to do.
  constexpr int V = (int)C::V, U = 2 * loads_ahead(V * (int)sizeof(X));
  const X* x = args.ptr<X>(0) + C::in_offset::get(ctx) * C::in_unit;
  Y* y = args.ptr<Y>(1) + C::out_offset::get(ctx) * C::out_unit;
  const StridedTile<C> t(ctx, tile);
  for (u32 i = (u32)consumer_thread(); i < t.vectors; i += U * kConsumers) {
    Elements<X, V> v[U] = {};
    i64 in, out[U];
    bool there[U];
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      const u32 n = i + (u32)(u * kConsumers);
      there[u] = n < t.vectors && t.locate(n, in, out[u]);
      if (there[u]) v[u].load(x + in);
    }
    MACO_UNROLL
    for (int u = 0; u < U; ++u)
      if (there[u]) convert<Y>(v[u]).store(y + out[u]);
  }
}

}  // namespace ops
}  // namespace maco
