// rows.cuh: what ops over rows share: a team of threads works on a row, reads it in vectors, and
// sums it in a fixed order.

namespace maco {

MACO_FN constexpr i64 round_up(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }
MACO_FN constexpr i64 round_down(i64 n, i64 unit) { return n / unit * unit; }
// Below every score of a softmax; with it infinities need no special treatment.
[[maybe_unused]] constexpr float kLeast = -3.4028235e38f;
// The least power of two that is at least n.
MACO_FN constexpr i64 power_above(i64 n) {
  i64 power = 1;
  while (power < n) power *= 2;
  return power;
}
// How many elements the widest vector has that has at most `bytes` bytes (a power of two) and
// starts at every multiple of n elements.
MACO_FN constexpr int vector_width(i64 n, i64 element_bytes, i64 bytes = 16) {
  int v = 1;
  while (2 * v * element_bytes <= bytes && n % (2 * v) == 0) v *= 2;
  return v;
}

// The threads that work on one row: a warp, so that eight rows are processed at once, or the whole
// CTA, which is faster for a long row.
struct WarpTeam {
  static constexpr int kSize = kWarpLanes, kTeams = kWarps;
  static MACO_FN int team() { return warp(); }
  static MACO_FN int at() { return warp_lane(); }
};
struct CtaTeam {
  static constexpr int kSize = kConsumers, kTeams = 1;
  static MACO_FN int team() { return 0; }
  static MACO_FN int at() { return consumer_thread(); }
};
// The team depends on the row's length and on the op's number of rows, so that a row has the same
// bits however rows are cut into tiles. If there are many rows, a task has some for each of its
// warps, which don't wait for each other. Rows: Const or Value.
[[maybe_unused]] constexpr i64 kManyRows = 1024;
constexpr i64 kMostByWarp = 2048;  // as many 16-bit elements as its registers hold
template <class Rows>
MACO_FN constexpr bool many_rows() {
  if constexpr (Rows::is_constant) return Rows::value >= kManyRows;
  return false;
}
struct FewRows {
  static constexpr bool is_constant = false;
};
template <i64 N, class Rows = FewRows>
using TeamFor =
    typename Either<(N > (many_rows<Rows>() ? kMostByWarp : 2047)), CtaTeam, WarpTeam>::type;

// Combines one value of each thread of the team, for each of several rows, in a fixed order; all
// threads get the results. A CTA's team has a barrier on both sides. kFirst: nothing has been
// combined since the task began; there is a barrier before that.
template <class Team, bool kFirst = false, int kRows, class A, class Op>
MACO_FN void team_reduce_rows(Context& ctx, A (&values)[kRows], Op op) {
  MACO_UNROLL
  for (int r = 0; r < kRows; ++r) values[r] = warp_combined(values[r], op);
  if constexpr (Team::kTeams == 1 && kWarps > 1) {
    A* part = (A*)ctx.memory()->reduce;
    static_assert(kRows * kWarps <= kReduceParts, "each warp has its parts");
    if constexpr (!kFirst) cta_sync();
    if (warp_lane() == 0) {
      MACO_UNROLL
      for (int r = 0; r < kRows; ++r) part[r * kWarps + warp()] = values[r];
    }
    cta_sync();
    MACO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      values[r] = part[r * kWarps];
      for (int w = 1; w < kWarps; ++w) values[r] = op(values[r], part[r * kWarps + w]);
    }
  }
}

template <class Team, bool kFirst = false, class A, class Op>
MACO_FN A team_reduce(Context& ctx, A value, Op op) {
  A values[1] = {value};
  team_reduce_rows<Team, kFirst>(ctx, values, op);
  return values[0];
}

// A thread's share of a sum over kSteps vectors. A lone thread keeps eight sums side by side, which
// its vector unit adds at once. Every kFold vectors the sums are folded into a total, every kFold
// totals into another, and so on: no sum has so many terms that rounding errors add up.
constexpr i64 kFold = 64;
template <class A, i64 kSteps>
struct Sum {
  static constexpr int kParts = kWarpLanes == 1 ? 8 : 1;
  static constexpr int kLevels = kSteps <= kFold * kFold           ? 1
                                 : kSteps <= kFold * kFold * kFold ? 2
                                                                   : 3;
  A part[kParts] = {};
  A level[kLevels] = {};
  MACO_FN void add(int i, A x) { part[i % kParts] = fn::add(part[i % kParts], x); }
  // Called after vector k.
  MACO_FN void added(i64 k) {
    if (k % kFold != kFold - 1) return;
    fold();
    if constexpr (kLevels > 1)
      if (k % (kFold * kFold) == kFold * kFold - 1) carry<0>();
    if constexpr (kLevels > 2)
      if (k % (kFold * kFold * kFold) == kFold * kFold * kFold - 1) carry<1>();
  }
  MACO_FN A total() {
    fold();
    A all = level[0];
    MACO_UNROLL
    for (int l = 1; l < kLevels; ++l) all = fn::add(level[l], all);
    return all;
  }
  MACO_FN void fold() {
    MACO_UNROLL
    for (int i = 0; i < kParts; ++i) {
      level[0] = fn::add(level[0], part[i]);
      part[i] = 0;
    }
  }
  template <int kFrom>
  MACO_FN void carry() {
    level[kFrom + 1] = fn::add(level[kFrom + 1], level[kFrom]);
    level[kFrom] = 0;
  }
};

// How a team goes through a row of N elements, V at a time. If a thread's share is at most kMost
// elements, it is `held` in registers between passes.
template <class Team, i64 N, int V, int kMost = 32>
struct Walk {
  static constexpr i64 kSteps = (N / V + Team::kSize - 1) / Team::kSize;
  static constexpr bool kHeld = kWarpLanes > 1 && kSteps* V <= kMost;
  static constexpr i64 kStride = (i64)Team::kSize * V;
  static MACO_FN i64 first() { return (i64)Team::at() * V; }
  // Calls f(step, first element) for each vector of this thread among the first n elements.
  template <class F>
  static MACO_FN void each(i64 n, F f) {
    if constexpr (kHeld) {
      MACO_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        i64 i = first() + k * kStride;
        if (i < n) f(k, i);
      }
    } else {
      i64 i = first();
      for (int k = 0; i < n; ++k, i += kStride) f(k, i);
    }
  }
};
// The walk for elements of type T: registers hold twice as many if they are small.
template <class T, class Team, i64 N, int V>
using RowWalk = Walk<Team, N, V, sizeof(T) <= 2 ? 64 : 32>;
// The walk for a factor that all rows share, beside rows with such walks.
template <class T, class Row, class Team, i64 N, int V>
using SharedWalk = Walk<Team, N, V,
                        !Row::kHeld      ? 0
                        : sizeof(T) <= 2 ? 64
                                         : 32>;

// 1 / sqrt(sum / n + eps): the factor by which a norm scales a row of n elements.
template <i64 N>
MACO_FN float norm_scale(float sum, float eps) {
  return fnear_rsqrt(fadd(fmul(sum, (float)(1.0 / (double)N)), eps));
}
// A thread's share of a row. P: a pointer, or Received. kAhead: it is loaded while another one is
// processed.
template <class T, class W, int V, class P = const T*, bool kAhead = false>
struct Held {
  using Kept = typename Either<kAhead, HeldVec<T, V>, Vec<T, V>>::type;
  Kept kept[W::kHeld ? W::kSteps : 1];
  P row;
  // Whole warps load packets.
  MACO_FN void load(P p, i64 n) {
    row = p;
    if constexpr (W::kHeld && is_same<P, const T*>) {
      W::each(n, [&](int k, i64 i) {
        if constexpr (kAhead) {
          kept[k] = gload_held<V>(p + i);
        } else {
          kept[k] = gload_vec<V>(p + i);
        }
      });
    } else if constexpr (W::kHeld) {
      PacketRun<T, V> runs[W::kSteps];
      receive_together(*p.ctx, p.operand, runs,
                       [&](int k) { return p + least(W::first() + k * W::kStride, n - V); });
      W::each(n, [&](int k, i64) { kept[k] = runs[k].values(); });
    }
  }
  MACO_FN Vec<T, V> get(int k, i64 i) const {
    if constexpr (W::kHeld) {
      if constexpr (kAhead) {
        return bits_as<Vec<T, V>>(kept[k]);
      } else {
        return kept[k];
      }
    } else {
      return gload_vec<V>(row + i);
    }
  }
  // Called behind the other loads.
  MACO_FN void use_from_here() {
    if constexpr (W::kHeld) {
      MACO_UNROLL
      for (auto& vector : kept) used_from_here(vector);
    }
  }
  // Calls f(step, first element, vector) for each vector of this thread. What isn't held is loaded
  // four vectors at a time: waiting for each vector would cost the memory's latency each time.
  template <class F>
  MACO_FN void visit(i64 n, F f) const {
    if constexpr (W::kHeld || kWarpLanes == 1) {
      W::each(n, [&](int k, i64 i) { f(k, i, get(k, i)); });
    } else {
      constexpr int kBatch = 4;
      i64 i = W::first();
      int k = 0;
      for (; i + (kBatch - 1) * W::kStride < n; k += kBatch, i += kBatch * W::kStride) {
        Vec<T, V> x[kBatch];
        MACO_UNROLL
        for (int b = 0; b < kBatch; ++b) x[b] = gload_vec<V>(row + i + b * W::kStride);
        MACO_UNROLL
        for (int b = 0; b < kBatch; ++b) f(k + b, i + b * W::kStride, x[b]);
      }
      for (; i < n; ++k, i += W::kStride) f(k, i, gload_vec<V>(row + i));
    }
  }
};

// How many rows a team processes at once: with one short row its threads would wait for each other
// again and again. A CTA has twice as many, since all of its warps wait at each barrier.
template <class Team, class T, class W, int V>
constexpr i64 kRowsAtOnce =
    !W::kHeld
        ? 1
        : most(1, least(4, (Team::kTeams == 1 && sizeof(T) <= 2 ? 64 : 32) / (W::kSteps * V)));

// A team's rows `first`, first + Team::kTeams, ..., with n elements each, of a tile of at most
// kTile rows. The last row replaces those that aren't below `end`.
template <class Team, class T, class W, int V, i64 kTile>
struct HeldRows {
  static constexpr i64 kRowsOfTeam = (kTile + Team::kTeams - 1) / Team::kTeams;
  static constexpr int kRows = (int)least(kRowsAtOnce<Team, T, W, V>, kRowsOfTeam);
  static constexpr i64 kStep = kRows * Team::kTeams;
  static constexpr bool kAhead = kWarpLanes > 1 && kRowsOfTeam >= 4 * kRows;
  using Acc = AccOf<T>;
  using Vector = Vec<T, V>;
  using Walk = W;
  static constexpr int kWidth = V;
  Held<T, W, V, const T*, kAhead> rows[kRows];
  MACO_FN void load(const T* p, i64 first, i64 end, i64 n) {
    MACO_UNROLL
    for (int b = 0; b < kRows; ++b) {
      const i64 r = least(first + b * Team::kTeams, end - 1);
      rows[b].load(p + r * n, n);
    }
  }
};

// Calls f(rows, first) for the team's rows of [begin, end), with n elements each, as many as Rows
// holds at once. The next rows are loaded while some are processed. If a tile has few rows, they
// share one copy of the code: most of a rare task's time is spent fetching code.
template <class Team, class Rows, class T, class F>
MACO_FN void each_held(const T* p, i64 begin, i64 end, i64 n, F f) {
  const i64 first = begin + Team::team();
  if constexpr (Rows::kAhead) {
    each_ahead<Rows, Rows::kRowsOfTeam>(
        first, end, Rows::kStep, [&](Rows& rows, i64 at) { rows.load(p, at, end, n); },
        [&](const Rows& rows, i64 at) { f(rows, at); });
  } else {
    if (first >= end) return;
    Rows next;
    next.load(p, first, end, n);
    if constexpr (Rows::kRows >= Rows::kRowsOfTeam) {
      f(next, first);
    } else {
      MACO_ROLLED
      for (i64 at = first; at < end; at += Rows::kStep) {
        const Rows rows = next;
        if (at + Rows::kStep < end) next.load(p, at + Rows::kStep, end, n);
        f(rows, at);
      }
    }
  }
}

// For each row the sum of f(row, x) over its elements.
template <class Team, class Rows, class F>
MACO_FN void row_sums(Context& ctx, const Rows& held, i64 n, F f,
                      typename Rows::Acc (&sums)[Rows::kRows]) {
  using Acc = typename Rows::Acc;
  constexpr int V = Rows::kWidth;
  MACO_UNROLL
  for (int b = 0; b < Rows::kRows; ++b) {
    Sum<Acc, Rows::Walk::kSteps> sum;
    held.rows[b].visit(n, [&](int k, i64, typename Rows::Vector x) {
      MACO_UNROLL
      for (int v = 0; v < V; ++v) sum.add(V == 1 ? k : v, f(b, to_acc(x.v[v])));
      if (!Rows::Walk::kHeld) sum.added(k);
    });
    sums[b] = sum.total();
  }
  team_reduce_rows<Team>(ctx, sums, [](Acc x, Acc y) { return fn::add(x, y); });
}
// For each row the sum of f(row, x) over its elements, and the sum of the squares, in one pass.
template <class Team, class Rows, class F>
MACO_FN void row_moments(Context& ctx, const Rows& held, i64 n, F f,
                         typename Rows::Acc (&sums)[Rows::kRows],
                         typename Rows::Acc (&squares)[Rows::kRows]) {
  using Acc = typename Rows::Acc;
  constexpr int V = Rows::kWidth, kRows = Rows::kRows;
  Acc both[2 * kRows];
  MACO_UNROLL
  for (int b = 0; b < kRows; ++b) {
    Sum<Acc, Rows::Walk::kSteps> sum, square;
    held.rows[b].visit(n, [&](int k, i64, typename Rows::Vector x) {
      MACO_UNROLL
      for (int v = 0; v < V; ++v) {
        const Acc value = f(b, to_acc(x.v[v]));
        sum.add(V == 1 ? k : v, value);
        square.add(V == 1 ? k : v, fmul(value, value));
      }
      if (!Rows::Walk::kHeld) {
        sum.added(k);
        square.added(k);
      }
    });
    both[b] = sum.total();
    both[kRows + b] = square.total();
  }
  const auto add = [](Acc x, Acc y) { return fn::add(x, y); };
  constexpr bool fits = Team::kTeams > 1 || 2 * kRows * kWarps <= kReduceParts;
  if constexpr (fits) team_reduce_rows<Team>(ctx, both, add);
  MACO_UNROLL
  for (int b = 0; b < kRows; ++b) {
    sums[b] = both[b];
    squares[b] = both[kRows + b];
  }
  if constexpr (!fits) {
    team_reduce_rows<Team>(ctx, sums, add);
    team_reduce_rows<Team>(ctx, squares, add);
  }
}
// The sum of one row, by a team of a CTA, once in a task and before anything else is combined.
template <class Team, class W, class T, int V, class P, class F>
MACO_FN AccOf<T> row_sum(Context& ctx, const Held<T, W, V, P>& row, i64 n, F f) {
  Sum<AccOf<T>, W::kSteps> sum;
  row.visit(n, [&](int k, i64, Vec<T, V> x) {
    MACO_UNROLL
    for (int v = 0; v < V; ++v) sum.add(V == 1 ? k : v, f(to_acc(x.v[v])));
    if (!W::kHeld) sum.added(k);
  });
  return team_reduce<Team, true>(ctx, sum.total(),
                                 [](AccOf<T> x, AccOf<T> y) { return fn::add(x, y); });
}

// The largest of each row's elements and of start(row); larger(a, b) compares two.
template <class Team, class Rows, class G, class F>
MACO_FN void row_tops(Context& ctx, const Rows& held, i64 n,
                      typename Rows::Acc (&tops)[Rows::kRows], G start, F larger) {
  MACO_UNROLL
  for (int b = 0; b < Rows::kRows; ++b) {
    typename Rows::Acc best = start(b);
    held.rows[b].visit(n, [&](int, i64, typename Rows::Vector x) {
      MACO_UNROLL
      for (int v = 0; v < Rows::kWidth; ++v) best = larger(best, to_acc(x.v[v]));
    });
    tops[b] = best;
  }
  team_reduce_rows<Team>(ctx, tops, larger);
}

}  // namespace maco
