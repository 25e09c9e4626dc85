// reduce: the sum, mean or maximum of each row. A tile is BR rows.

namespace maco::ops {

enum class ReduceKind : u8 { sum, mean, max };

// Operands x [rows,cols], y [rows]. C: X, Y, rows, cols, N (the most that cols can be), BR, kind.
template <class C>
MACO_OP void reduce(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using A = AccOf<X>;
  using Team = TeamFor<C::N>;
  constexpr int V = C::cols::is_constant ? vector_width(C::N, sizeof(X)) : 1;
  using Row = Walk<Team, C::N, V>;

  const i64 n = C::cols::get(ctx);
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  Held<X, Row, V> x;
  for (i64 r = begin + Team::team(); r < end; r += Team::kTeams) {
    x.load(args.ptr<const X>(0) + r * n, n);
    A result;
    if constexpr (C::kind == ReduceKind::max) {
      result = row_max<Team>(ctx, x, n);
    } else {
      result = row_sum<Team>(ctx, x, n, [](A v) { return v; });
      if constexpr (C::kind == ReduceKind::mean) result = fdiv(result, (float)n);
    }
    if (Team::at() == 0) gstore(args.ptr<Y>(1) + r, from_acc<Y>(result));
  }
}

}  // namespace maco::ops
