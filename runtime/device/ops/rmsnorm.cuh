// rmsnorm: x / sqrt(mean(x^2) + eps) * w for each row. A tile is BR rows.

namespace maco::ops {

// Operands x [rows,N], w [N], y [rows,N]. C: X, W, Y, rows, N, BR, eps.
template <class C>
MACO_OP void rmsnorm(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using W = typename C::W;
  using Y = typename C::Y;
  using Team = TeamFor<C::N, typename C::rows>;
  constexpr int V = vector_width(C::N, most(most(sizeof(X), sizeof(W)), sizeof(Y)));
  using Row = RowWalk<X, Team, C::N, V>;

  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  using Rows = HeldRows<Team, X, Row, V, C::BR>;
  Held<W, SharedWalk<W, Row, Team, C::N, V>, V> w;
  w.load(args.ptr<const W>(1), C::N);
  each_held<Team, Rows>(args.ptr<const X>(0), begin, end, C::N, [&](const Rows& x, i64 first) {
    float squares[Rows::kRows];
    row_sums<Team>(ctx, x, C::N, [](int, float v) { return fmul(v, v); }, squares);
    MACO_UNROLL
    for (int b = 0; b < Rows::kRows; ++b) {
      const i64 r = first + b * Team::kTeams;
      if (r >= end) break;
      const float scale = norm_scale<C::N>(squares[b], (float)C::eps);
      Y* y = args.ptr<Y>(2) + r * C::N;
      x.rows[b].visit(C::N, [&](int k, i64 i, Vec<X, V> xs) {
        const Vec<W, V> ws = w.get(k, i);
        Vec<Y, V> ys;
        MACO_UNROLL
        for (int v = 0; v < V; ++v)
          ys.v[v] = from_acc<Y>(fmul(fmul(to_acc(xs.v[v]), scale), to_acc(ws.v[v])));
        gstore_vec<V>(y + i, ys);
      });
    }
  });
}

}  // namespace maco::ops
