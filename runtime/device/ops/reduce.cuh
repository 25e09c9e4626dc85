// reduce: the sum, mean or maximum of each row. A tile is BR rows.

namespace maco::ops {

enum class ReduceKind : u8 { sum, mean, max };

// Operands x [rows,cols], y [rows]. C: X, Y, rows, cols, N (the largest possible cols), BR, kind.
template <class C>
MACO_OP void reduce(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using A = AccOf<X>;
  using Team = TeamFor<C::N, typename C::rows>;
  constexpr int V = C::cols::is_constant ? vector_width(C::N, sizeof(X)) : 1;
  using Row = RowWalk<X, Team, C::N, V>;

  const i64 n = C::cols::get(ctx);
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  using Rows = HeldRows<Team, X, Row, V, C::BR>;
  each_held<Team, Rows>(args.ptr<const X>(0), begin, end, n, [&](const Rows& x, i64 first) {
    A results[Rows::kRows];
    if constexpr (C::kind == ReduceKind::max) {
      row_tops<Team>(
          ctx, x, n, results, [&](int row) { return to_acc(gload(x.rows[row].row)); },
          [](A a, A b) { return fn::maximum(a, b); });
    } else {
      row_sums<Team>(ctx, x, n, [](int, A v) { return v; }, results);
    }
    MACO_UNROLL
    for (int row = 0; row < Rows::kRows; ++row) {
      const i64 r = first + row * Team::kTeams;
      if (r >= end) break;
      if constexpr (C::kind == ReduceKind::mean) results[row] = fdiv(results[row], (float)n);
      if (Team::at() == 0) gstore(args.ptr<Y>(1) + r, from_acc<Y>(results[row]));
    }
  });
}

}  // namespace maco::ops
