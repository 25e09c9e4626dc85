// layernorm: (x - mean) / sqrt(variance + eps) * w + b for each row. A tile is BR rows.

namespace maco::ops {

// Operands x [rows,N], w [N], b [N], y [rows,N]. C: X, W, B, Y, rows, N, BR, eps.
template <class C>
MACO_OP void layernorm(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using W = typename C::W;
  using B = typename C::B;
  using Y = typename C::Y;
  using Team = TeamFor<C::N, typename C::rows>;
  constexpr int V =
      vector_width(C::N, most(most(sizeof(X), sizeof(W)), most(sizeof(B), sizeof(Y))));
  using Row = RowWalk<X, Team, C::N, V>;

  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  using Rows = HeldRows<Team, X, Row, V, C::BR>;
  Held<W, SharedWalk<W, Row, Team, C::N, V>, V> w;
  Held<B, SharedWalk<B, Row, Team, C::N, V>, V> b;
  w.load(args.ptr<const W>(1), C::N);
  b.load(args.ptr<const B>(2), C::N);
  each_held<Team, Rows>(args.ptr<const X>(0), begin, end, C::N, [&](const Rows& x, i64 first) {
    float means[Rows::kRows], rests[Rows::kRows], squares[Rows::kRows];
    row_sums<Team>(ctx, x, C::N, [](int, float v) { return v; }, means);
    MACO_UNROLL
    for (int row = 0; row < Rows::kRows; ++row) {
      means[row] = fdiv(means[row], (float)C::N);
      rests[row] = 0;
    }
    // Far from zero a mean is rounded by more than the difference that 32-bit values may have;
    // subtracting it leaves values with a mean of their own. 16-bit values that differ do so by
    // more than that.
    constexpr bool fine = sizeof(X) > 2;
    const auto difference = [&](int row, float v) {
      const float apart = fsub(v, means[row]);
      return fine ? fsub(apart, rests[row]) : apart;
    };
    if constexpr (fine) {
      // If the mean is small, its square may be subtracted from the mean of squares. The sum of a
      // row that isn't held in registers is rounded more. All threads of a team have the same sums.
      bool small = false;
      MACO_ROLLED
      for (int turn = 0; turn < (Rows::Walk::kHeld ? 1 : 2) && !small; ++turn) {
        float sums[Rows::kRows];
        row_moments<Team>(ctx, x, C::N, difference, sums, squares);
        small = true;
        MACO_UNROLL
        for (int row = 0; row < Rows::kRows; ++row) {
          const float rest = fdiv(sums[row], (float)C::N), square = fmul(sums[row], rest),
                      apart = fsub(squares[row], square);
          small = small && !(square > apart);
          rests[row] = fadd(rests[row], rest);
          squares[row] = apart > 0 ? apart : 0;
        }
      }
    } else {
      // The variance comes from the differences: the mean of squares less the square of the mean
      // would lose digits.
      const auto square = [&](int row, float v) {
        return fmul(difference(row, v), difference(row, v));
      };
      row_sums<Team>(ctx, x, C::N, square, squares);
    }
    MACO_UNROLL
    for (int row = 0; row < Rows::kRows; ++row) {
      const i64 r = first + row * Team::kTeams;
      if (r >= end) break;
      const float scale = norm_scale<C::N>(squares[row], (float)C::eps),
                  nothing = fmul(means[row] < 0 ? -means[row] : means[row], 1e-13f);
      Y* y = args.ptr<Y>(3) + r * C::N;
      x.rows[row].visit(C::N, [&](int k, i64 i, Vec<X, V> xs) {
        const Vec<W, V> ws = w.get(k, i);
        const Vec<B, V> bs = b.get(k, i);
        Vec<Y, V> ys;
        MACO_UNROLL
        for (int v = 0; v < V; ++v) {
          float apart = difference(row, to_acc(xs.v[v]));
          // A row of equal values gives zeros, however its sum is rounded.
          if (fine && apart <= nothing && apart >= -nothing) apart = 0;
          const float scaled = fmul(fmul(apart, scale), to_acc(ws.v[v]));
          ys.v[v] = from_acc<Y>(fadd(scaled, to_acc(bs.v[v])));
        }
        gstore_vec<V>(y + i, ys);
      });
    }
  });
}

}  // namespace maco::ops
