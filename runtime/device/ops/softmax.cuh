// softmax over the last axis, from differences to the row's maximum. A tile is BR rows.

namespace maco::ops {

// Operands x [rows,cols], y likewise. C: X, Y, rows, cols, N (the largest possible cols), BR.
template <class C>
MACO_OP void softmax(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using Team = TeamFor<C::N, typename C::rows>;
  constexpr int V = C::cols::is_constant ? vector_width(C::N, most(sizeof(X), sizeof(Y))) : 1;
  using Row = RowWalk<X, Team, C::N, V>;

  const i64 n = C::cols::get(ctx);
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  using Rows = HeldRows<Team, X, Row, V, C::BR>;
  each_held<Team, Rows>(args.ptr<const X>(0), begin, end, n, [&](const Rows& x, i64 first) {
    float tops[Rows::kRows], sums[Rows::kRows];
    row_tops<Team>(ctx, x, n, tops, [](int) { return kLeast; }, Top());
    row_sums<Team>(ctx, x, n, [&](int row, float v) { return fexp(fsub(v, tops[row])); }, sums);
    MACO_UNROLL
    for (int row = 0; row < Rows::kRows; ++row) {
      const i64 r = first + row * Team::kTeams;
      if (r >= end) break;
      const float top = tops[row], scale = finverse(sums[row]);
      Y* y = args.ptr<Y>(1) + r * n;
      x.rows[row].visit(n, [&](int, i64 i, Vec<X, V> xs) {
        Vec<Y, V> ys;
        MACO_UNROLL
        for (int v = 0; v < V; ++v)
          ys.v[v] = from_acc<Y>(fmul(fexp(fsub(to_acc(xs.v[v]), top)), scale));
        gstore_vec<V>(y + i, ys);
      });
    }
  });
}

}  // namespace maco::ops
