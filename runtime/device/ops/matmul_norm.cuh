// matmul of rows that each task norms for itself, as rmsnorm would: the weights are operand
// norm_at. C: as for matmul, and G, the weights' type, and eps.

namespace maco::ops {

template <class C>
struct NormRows : PlainRows<C> {
  using X = typename C::X;
  using G = typename C::G;
  static constexpr bool kChange = true, kWholeRow = true;

  // The weights are few, but would be far away when the consumers need them.
  static MACO_FN void prefetch(const Args& args) {
    const char* weights = args.ptr<const char>(C::norm_at);
    for (i64 i = loader_thread() * kLineBytes; i < C::K * (i64)sizeof(G);
         i += kLoaders * kLineBytes)
      maco::prefetch(weights + i);
  }

  // The factor by which row r of the tile is normed.
  template <class Team>
  static MACO_FN void scale(Context& ctx, const MatmulTile<C>& t, const Args& args, i64 r) {
    constexpr int V = vector_width(C::K, most(most(sizeof(X), sizeof(G)), 2));
    const auto rows = matmul_rows(t, args);
    Held<X, Walk<Team, C::K, V>, V, decltype(rows + 0)> row;
    row.load(rows + r * C::K, C::K);
    const float squares = row_sum<Team>(ctx, row, C::K, [](float v) { return fmul(v, v); });
    if (Team::at() == 0) ctx.memory()->scales[r] = norm_scale<C::K>(squares, (float)C::eps);
  }
  // The factors of all rows of the tile: the op's only row is normed by all warps, several rows by
  // a warp each. Has barriers inside, before anyone reads ctx.memory()->scales.
  template <bool kLone>
  static MACO_FN void begin(Context& ctx, const MatmulTile<C>& t, const Args& args) {
    if constexpr (kLone) {
      scale<TeamFor<C::K>>(ctx, t, args, 0);
    } else {
      for (i64 r = warp(); r < t.rows; r += kWarps) scale<WarpTeam>(ctx, t, args, r);
    }
    cta_sync();
  }
  // Rounded as a tensor of their own would be.
  template <int V>
  static MACO_FN Vec<X, V> change(const Args& args, const MatmulTile<C>&, const float* scales,
                                  i64 r, i64 k, const Vec<X, V>& x) {
    constexpr int kPiece = vector_width(V, sizeof(G));
    const float scale = scales[r];
    Vec<X, V> y;
    MACO_UNROLL
    for (int i = 0; i < V; i += kPiece) {
      const auto g = gload_vec<kPiece>(args.ptr<const G>(C::norm_at) + k + i);
      MACO_UNROLL
      for (int e = 0; e < kPiece; ++e)
        y.v[i + e] = from_acc<X>(fmul(fmul(to_acc(x.v[i + e]), scale), to_acc(g.v[e])));
    }
    return y;
  }

  // The row is read once.
  template <i64 kPitch, bool kPaired>
  static MACO_FN void stage_lone(Context& ctx, const MatmulTile<C>& t, const Args& args, X* to) {
    using Team = TeamFor<C::K>;  // as rmsnorm: warps do the same, or all share the row
    constexpr int V = vector_width(C::K, most(most(sizeof(X), sizeof(G)), 2));
    using Row = Walk<Team, C::K, V>;
    const auto rows = matmul_rows(t, args);
    Held<X, Row, V, decltype(rows + 0)> x;
    Held<G, Row, V> g;
    if constexpr (!C::a_packets) x.load(rows, C::K);
    g.load(args.ptr<const G>(C::norm_at), C::K);
    if constexpr (C::a_packets) {
      x.load(rows, C::K);
      g.use_from_here();
    }
    const float squares = row_sum<Team>(ctx, x, C::K, [](float v) { return fmul(v, v); });
    const float scale = norm_scale<C::K>(squares, (float)C::eps);
    x.visit(C::K, [&](int k, i64 i, Vec<X, V> xs) {
      if (Team::kTeams > 1 && k % kWarps != warp()) return;
      const Vec<G, V> gs = g.get(k, i);
      Vec<X, V> ys;
      MACO_UNROLL
      for (int v = 0; v < V; ++v)
        ys.v[v] = from_acc<X>(fmul(fmul(to_acc(xs.v[v]), scale), to_acc(gs.v[v])));
      put_run<kPaired>(to, i, ys);
    });
  }

  // Has a barrier inside.
  template <class Line>
  static MACO_FN void load_line(Context& ctx, const MatmulTile<C>& t, const Args& args, Line& row) {
    constexpr int V = Line::V, kSteps = Line::kSteps;
    constexpr bool kHeld = Line::kHeld;
    constexpr int kPiece = vector_width(V, sizeof(G));
    const G* const weights = args.ptr<const G>(C::norm_at);
    Vec<G, kPiece> gs[kHeld ? kSteps : 1][V / kPiece];
    const auto ask = [&](int k, int slot) {
      MACO_UNROLL
      for (int i = 0; i < V; i += kPiece)
        gs[slot][i / kPiece] = gload_vec<kPiece>(weights + row.place(k) + i);
    };
    if constexpr (kHeld) row.each([&](int k) { ask(k, k); });
    row.load(t, args);
    if constexpr (kHeld) {
      MACO_UNROLL
      for (auto& step : gs) {
        MACO_UNROLL
        for (auto& piece : step) used_from_here(piece);
      }
    }
    Sum<float, kSteps> sum;
    row.each([&](int k) {
      const auto x = bits_as<Vec<X, V>>(row.step(k));
      if (!row.counts(k)) return;
      MACO_UNROLL
      for (int v = 0; v < V; ++v) sum.add(v, fmul(to_acc(x.v[v]), to_acc(x.v[v])));
    });
    const float squares =
        team_reduce<CtaTeam, true>(ctx, sum.total(), [](float p, float q) { return fadd(p, q); });
    const float scale = norm_scale<C::K>(squares, (float)C::eps);
    row.each([&](int k) {
      if constexpr (!kHeld) ask(k, 0);
      const auto x = bits_as<Vec<X, V>>(row.step(k));
      Vec<X, V> y;
      MACO_UNROLL
      for (int v = 0; v < V; ++v) {
        const G g = gs[kHeld ? k : 0][v / kPiece].v[v % kPiece];
        y.v[v] = from_acc<X>(fmul(fmul(to_acc(x.v[v]), scale), to_acc(g)));
      }
      row.put(k, y);
    });
  }
};

}  // namespace maco::ops
