// argmax: where the maximum of each row is, the first of equals; the first NaN if there is one. A
// tile is BR rows.

namespace maco::ops {

template <class A>
struct Place {
  A value;
  i32 at;  // -1: none yet
};
template <class A>
MACO_FN Place<A> better(Place<A> a, Place<A> b) {
  if (b.at < 0) return a;
  if (a.at < 0) return b;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool equal = a.value == b.value || (a_nan && b_nan);
  if (equal) return a.at < b.at ? a : b;
  if (a_nan || b_nan) return a_nan ? a : b;
  return a.value > b.value ? a : b;
}

// Operands x [rows,cols], y [rows] i32. C: X, Y, rows, cols, N (the most that cols can be), BR.
template <class C>
MACO_OP void argmax(Context& ctx, const Args& args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using A = AccOf<X>;
  using Team = TeamFor<C::N>;
  constexpr int V = C::cols::is_constant ? vector_width(C::N, sizeof(X)) : 1;
  using Row = Walk<Team, C::N, V>;

  const i64 n = C::cols::get(ctx);
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  for (i64 r = begin + Team::team(); r < end; r += Team::kTeams) {
    Held<X, Row, V> x;
    x.load(args.ptr<const X>(0) + r * n, n);
    Place<A> best{0, -1};
    x.visit(n, [&](int, i64 i, Vec<X, V> xs) {
      MACO_UNROLL
      for (int v = 0; v < V; ++v) best = better(best, Place<A>{to_acc(xs.v[v]), (i32)(i + v)});
    });
    for (int mask = kWarpLanes / 2; mask > 0; mask /= 2)
      best = better(best, Place<A>{shuffle_xor(best.value, mask), shuffle_xor(best.at, mask)});
    if constexpr (Team::kTeams == 1 && kWarps > 1) {
      Place<A>* part = (Place<A>*)ctx.scratch();
      cta_sync();
      if (warp_lane() == 0) part[warp()] = best;
      cta_sync();
      for (int w = 0; w < kWarps; ++w) best = better(best, part[w]);
    }
    if (Team::at() == 0) gstore(args.ptr<Y>(1) + r, from_acc<Y>(best.at));
  }
}

}  // namespace maco::ops
