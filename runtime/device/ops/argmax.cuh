// argmax: the index of each row's maximum, the first of equals; the first NaN if there is one. A
// tile is BR rows. Long rows are cut into parts, and a second function finds the best part.

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

// A team for rows of n elements, of which a task has few. A row's best is the same whichever team
// looks.
template <i64 n, i64 kRows>
using TeamForFew =
    typename Either<(kRows < kWarps && n > 8 * kWarpLanes), CtaTeam, TeamFor<n>>::type;

// The best over all threads of the team.
template <class Team, class A>
MACO_FN Place<A> best_of_team(Context& ctx, Place<A> best) {
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2)
    best = better(best, Place<A>{shuffle_xor(best.value, mask), shuffle_xor(best.at, mask)});
  if constexpr (Team::kTeams == 1 && kWarps > 1) {
    Place<A>* part = (Place<A>*)ctx.scratch();
    cta_sync();
    if (warp_lane() == 0) part[warp()] = best;
    cta_sync();
    for (int w = 0; w < kWarps; ++w) best = better(best, part[w]);
  }
  return best;
}

// The best of n elements from `x` on, in vectors of V; all threads of the team get it. kMost: the
// largest possible n.
template <class Team, int V, i64 kMost, class X>
MACO_FN Place<AccOf<X>> place_of_best(Context& ctx, const X* x, i64 n) {
  using A = AccOf<X>;
  using Row = Walk<Team, kMost, V>;
  Held<X, Row, V> held;
  held.load(x, n);
  Place<A> best{0, -1};
  held.visit(n, [&](int, i64 i, Vec<X, V> xs) {
    MACO_UNROLL
    for (int v = 0; v < V; ++v) best = better(best, Place<A>{to_acc(xs.v[v]), (i32)(i + v)});
  });
  return best_of_team<Team>(ctx, best);
}

// Operands x [rows,cols], y [rows] i32. C: X, Y, rows, cols, N (the largest possible cols), BR.
template <class C>
MACO_OP void argmax(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using Team = TeamFor<C::N>;
  constexpr int V = C::cols::is_constant ? vector_width(C::N, sizeof(X)) : 1;
  const i64 n = C::cols::get(ctx);
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  for (i64 r = begin + Team::team(); r < end; r += Team::kTeams) {
    const auto best = place_of_best<Team, V, C::N>(ctx, args.ptr<const X>(0) + r * n, n);
    if (Team::at() == 0) gstore(args.ptr<Y>(1) + r, from_acc<Y>(best.at));
  }
}

// For long rows: a tile is BN columns of BR rows. Operands x [rows,N], values and places, each
// [rows, parts of a row rounded up to whole vectors]. C: X, rows, N, BN, BR, values_packets,
// places_packets.
MACO_FN constexpr i64 pitch_of_parts(i64 parts) { return (parts + 3) / 4 * 4; }
template <class C>
MACO_OP void argmax_part(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Team = TeamForFew<C::BN, C::BR>;
  constexpr i64 kParts = (C::N + C::BN - 1) / C::BN;
  // V divides the begin and end of a part, and of each row.
  constexpr int V = (int)least(vector_width(C::N, sizeof(X)), vector_width(C::BN, sizeof(X)));
  const i64 part = tile % kParts, col = part * C::BN, n = least(C::BN, C::N - col);
  const i64 begin = (i64)(tile / kParts) * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  for (i64 r = begin + Team::team(); r < end; r += Team::kTeams) {
    const auto best = place_of_best<Team, V, C::BN>(ctx, args.ptr<const X>(0) + r * C::N + col, n);
    if (Team::at() == 0) {
      const i64 to = r * pitch_of_parts(kParts) + part;
      gstore(to_write<AccOf<X>, C::values_packets>(args, 1) + to, best.value);
      gstore(to_write<i32, C::places_packets>(args, 2) + to, (i32)(col + best.at));
    }
  }
}

// The best of each row's parts. Operands values and places, as above, y [rows] i32. A tile is BR
// rows. C: A (of values), Y, rows, parts, BR, values_packets, places_packets.
template <class C>
MACO_OP void argmax_merge(Context& ctx, Args args, u32 tile) {
  using A = typename C::A;
  using Y = typename C::Y;
  using Team = TeamForFew<C::parts, C::BR>;
  using Parts = Walk<Team, C::parts, 1, 64>;
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  for (i64 r = begin + Team::team(); r < end; r += Team::kTeams) {
    // If there are not many, all are requested before the first is looked at.
    const i64 from = r * pitch_of_parts(C::parts);
    const auto found = to_read<A, C::values_packets>(args, 0) + from;
    const auto where = to_read<i32, C::places_packets>(args, 1) + from;
    Held<A, Parts, 1, decltype(found + 0)> values;
    Held<i32, Parts, 1, decltype(where + 0)> places;
    values.load(found, C::parts);
    places.load(where, C::parts);
    Place<A> best{0, -1};
    values.visit(C::parts, [&](int k, i64 p, Vec<A, 1> value) {
      best = better(best, Place<A>{value.v[0], places.get(k, p).v[0]});
    });
    best = best_of_team<Team>(ctx, best);
    if (Team::at() == 0) gstore(args.ptr<Y>(2) + r, from_acc<Y>(best.at));
  }
}

}  // namespace maco::ops
