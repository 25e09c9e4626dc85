// rope: rotates pairs of elements of each head by an angle that grows with the row's position, or
// whose cosine and sine are in tables. A tile is BR rows. The first R of a head's D elements are
// rotated; the others are kept.

namespace maco::ops {

// Sine and cosine of a phase in units of 2^-64 rotations. Whole rotations drop out of the integer
// exactly, so that a long context costs no accuracy.
MACO_FN void sines_of(u64 phase, float& sine, float& cosine) {
  fsincospi(fmul((float)(i32)(u32)(phase >> 32), 4.656612873077393e-10f), sine, cosine);  // 2^-31
}

// The phase step, rounded to the nearest unit of 2^-64 rotations, of a pair that is rotated by
// `frequency` radians from one position to the next; anything if the frequency isn't finite. Its 24
// bits are multiplied by those bits of 1 / (2 pi) that count: bits that make whole rotations are
// left out.
MACO_FN u64 turns_of(float frequency) {
  static const u32 digits[12] = {0,           0,           0,           0,
                                 0,           0x28be60dbu, 0x9391054au, 0x7f09d5f4u,
                                 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau};
  const u32 bits = bits_as<u32>(frequency), exponent = bits >> 23 & 255;
  const u64 mantissa = (bits & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0u);
  const u32 first = (u32)most(least(exponent, 254), 1) + 10;  // bit of the digits
  const u32* from = digits + first / 32;
  const int shift = (int)(first % 32);
  const auto word = [&](int i) {
    return (u32)((((u64)from[i] << 32 | from[i + 1]) << shift) >> 32);
  };
  const u64 whole = (u64)word(0) << 32 | word(1);
  const u64 turns = mantissa * whole + ((mantissa * word(2) + 0x80000000u) >> 32);
  return bits >> 31 ? ~turns + 1 : turns;
}
// Sine and cosine of such a pair at `position`; NaN if its frequency isn't finite.
MACO_FN void sines_at(i64 position, float frequency, float& sine, float& cosine) {
  sines_of((u64)position * turns_of(frequency), sine, cosine);
  const float none = fsub(frequency, frequency);
  if (none != 0) sine = cosine = none;
}
// A cosine or sine times C::factor.
template <class C>
MACO_FN float by_factor(float value) {
  if constexpr (C::factor == 1) {
    return value;
  } else {
    return fmul(value, (float)C::factor);
  }
}

// How threads share a row: each thread has kRun adjacent pairs of every kHeads-th head, so that it
// keeps their sines and cosines. As many rows are processed at once as there are threads for.
template <class C>
struct RopeShape {
  using X = typename C::X;
  using Y = typename C::Y;
  static constexpr int kPairs = (int)C::R / 2;
  static constexpr i64 kBytes = most(sizeof(X), sizeof(Y));
  // Few if a pair's elements aren't adjacent: short code.
  static constexpr int kRun = C::interleaved ? vector_width(C::R | C::D, kBytes) / 2
                                             : vector_width(kPairs | C::D, kBytes, 8);
  static constexpr int kVector = C::interleaved ? 2 * kRun : kRun;  // adjacent elements
  // How many of these are aligned in x.
  static constexpr int kPiece = vector_width(kVector | C::x_cols | C::x_begin, sizeof(X));
  static constexpr int kRuns = kPairs / kRun;
  static constexpr int kHeads = (int)most(1, least(C::H, kConsumers / (kRuns * C::BR)));
  static constexpr int kThreads = kRuns * kHeads;  // of a row
  static constexpr int kRows = (int)most(1, kConsumers / kThreads);
  static constexpr int kBatch = (int)least(kConsumers > 1 ? 8 : 1, (C::H + kHeads - 1) / kHeads);
};

// Cosines and sines of kRun pairs, the same for both elements of a pair.
template <class C>
struct PositionAngles {
  using S = RopeShape<C>;
  float cosines[S::kRun], sines[S::kRun];

  MACO_FN void find(const Args&, i64 position, int pair) {
    MACO_UNROLL
    for (int i = 0; i < S::kRun; ++i) {
      sines_of((u64)position * C::turns(pair + i), sines[i], cosines[i]);
      sines[i] = by_factor<C>(sines[i]), cosines[i] = by_factor<C>(cosines[i]);
    }
  }
  MACO_FN float cosine(int i, int) const { return cosines[i]; }
  MACO_FN float sine(int i, int) const { return sines[i]; }
};

// The same for pairs whose frequencies are operand 1.
template <class C>
struct FrequencyAngles : PositionAngles<C> {
  MACO_FN void find(const Args& args, i64 position, int pair) {
    MACO_UNROLL
    for (int i = 0; i < PositionAngles<C>::S::kRun; ++i) {
      float &sine = this->sines[i], &cosine = this->cosines[i];
      sines_at(position, gload(args.ptr<const float>(1) + pair + i), sine, cosine);
      sine = by_factor<C>(sine), cosine = by_factor<C>(cosine);
    }
  }
};

// An angle's cosines and sines in row `position` of tables with `table_cols` columns: one for each
// pair, or one for each element. C: T, R, interleaved, table_cols, factor.
template <class C>
struct TableRow {
  static constexpr bool kEach = C::table_cols == C::R;  // a column for each element of a pair
  static constexpr int kOf = kEach ? 2 : 1;
  // The column of the element, or of the pair.
  static MACO_FN i64 column(int pair, int element) {
    if (!kEach) return pair;
    return C::interleaved ? 2 * pair + element : pair + element * (int)(C::R / 2);
  }
  static MACO_FN float load(const Args& args, int table, i64 position, int pair, int element) {
    using T = typename C::T;
    return by_factor<C>(
        to_acc(gload(args.ptr<const T>(table) + position * C::table_cols + column(pair, element))));
  }
};

// Cosines and sines of kRun pairs, from operands 1 and 2.
template <class C>
struct TableAngles {
  using S = RopeShape<C>;
  using Row = TableRow<C>;
  float cosines[Row::kOf][S::kRun], sines[Row::kOf][S::kRun];

  MACO_FN void find(const Args& args, i64 position, int pair) {
    MACO_UNROLL
    for (int e = 0; e < Row::kOf; ++e) {
      MACO_UNROLL
      for (int i = 0; i < S::kRun; ++i) {
        cosines[e][i] = Row::load(args, 1, position, pair + i, e);
        sines[e][i] = Row::load(args, 2, position, pair + i, e);
      }
    }
  }
  MACO_FN float cosine(int i, int element) const { return cosines[Row::kEach ? element : 0][i]; }
  MACO_FN float sine(int i, int element) const { return sines[Row::kEach ? element : 0][i]; }
};

// kRun pairs of a head.
template <class C>
struct RopePairs {
  using S = RopeShape<C>;
  using X = typename C::X;
  using Y = typename C::Y;
  X first[S::kVector], second[C::interleaved ? 1 : S::kVector];

  static MACO_FN void load_run(X (&to)[S::kVector], const X* from) {
    MACO_UNROLL
    for (int i = 0; i < S::kVector; i += S::kPiece) {
      const auto piece = gload_vec<S::kPiece>(from + i);
      MACO_UNROLL
      for (int e = 0; e < S::kPiece; ++e) to[i + e] = piece.v[e];
    }
  }
  // `run`: in the head, the first element of the pairs.
  MACO_FN void load(const X* run) {
    load_run(first, run);
    if constexpr (!C::interleaved) load_run(second, run + S::kPairs);
  }
  template <class Angles>
  MACO_FN void store(Y* run, const Angles& angles) const {
    Vec<Y, S::kVector> low, high;
    MACO_UNROLL
    for (int i = 0; i < S::kRun; ++i) {
      const float a = to_acc(first[C::interleaved ? 2 * i : i]);
      const float b = to_acc(C::interleaved ? first[2 * i + 1] : second[i]);
      const Y x = from_acc<Y>(fsub(fmul(a, angles.cosine(i, 0)), fmul(b, angles.sine(i, 0)))),
              y = from_acc<Y>(fadd(fmul(b, angles.cosine(i, 1)), fmul(a, angles.sine(i, 1))));
      low.v[C::interleaved ? 2 * i : i] = x;
      (C::interleaved ? low.v[2 * i + 1] : high.v[i]) = y;
    }
    gstore_vec<S::kVector>(run, low);
    if constexpr (!C::interleaved) gstore_vec<S::kVector>(run + S::kPairs, high);
  }
};

// Sines and cosines of a row's pairs, side by side. Operands (frequencies [D/2] f32, if
// `by_radians`), y [rows,D] f32. C: rows, D, BR, position, factor and turns, as for rope.
template <class C>
MACO_OP void rope_sines(Context& ctx, Args args, u32 tile) {
  constexpr i64 kPairs = C::D / 2;
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  const i64 first = C::position::get(ctx);
  for (i64 at = begin * kPairs + consumer_thread(); at < end * kPairs; at += kConsumers) {
    Vec<float, 2> of_pair;
    const i64 position = first + at / kPairs;
    const int pair = (int)(at % kPairs);
    if constexpr (C::by_radians) {
      const float frequency = gload(args.ptr<const float>(0) + pair);
      sines_at(position, frequency, of_pair.v[0], of_pair.v[1]);
    } else {
      sines_of((u64)position * C::turns(pair), of_pair.v[0], of_pair.v[1]);
    }
    of_pair.v[0] = by_factor<C>(of_pair.v[0]), of_pair.v[1] = by_factor<C>(of_pair.v[1]);
    gstore_vec<2>(args.ptr<float>(C::by_radians ? 1 : 0) + 2 * at, of_pair);
  }
}

// Copies the elements of a row that aren't rotated.
template <class C>
MACO_FN void keep_rest(const typename C::X* x, typename C::Y* y) {
  using S = RopeShape<C>;
  constexpr i64 kRest = C::D - C::R;
  constexpr int V = vector_width(kRest | C::D | C::x_cols | C::x_begin, S::kBytes);
  constexpr i64 kRuns = kRest / V;  // of a head
  for (i64 i = consumer_thread() % S::kThreads; i < C::H * kRuns;
       i += least(S::kThreads, kConsumers)) {
    const i64 at = i / kRuns * C::D + C::R + i % kRuns * V;
    const auto run = gload_vec<V>(x + at);
    Vec<typename C::Y, V> kept;
    MACO_UNROLL
    for (int e = 0; e < V; ++e) kept.v[e] = convert<typename C::Y>(run.v[e]);
    gstore_vec<V>(y + at, kept);
  }
}

// Rotates rows of operand 0, [rows,x_cols], into the last operand. If positions come from memory,
// they are operand `positions`, before the last. kLimited: positions must be below C::limit; others
// are reported.
template <class C, class Angles, bool kLimited>
MACO_FN void turn_rows(Context& ctx, const Args& args, u32 tile, int positions) {
  using S = RopeShape<C>;
  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  const int own_row = consumer_thread() / S::kThreads;
  if (S::kThreads <= kConsumers && own_row >= S::kRows) return;
  for (i64 r = begin + own_row; r < end; r += S::kRows) {
    i64 position;
    if constexpr (C::from_positions) {
      position = gload(args.ptr<const i32>(positions) + r);
    } else {
      position = C::position::get(ctx) + r;
    }
    if constexpr (kLimited && C::from_positions) {
      const i64 limit = C::limit::get(ctx);
      if (position < 0 || position >= limit) {
        if (consumer_thread() % S::kThreads == 0) ctx.bad_index(position, limit);
        continue;
      }
    }
    const auto* x = args.ptr<const typename C::X>(0) + r * C::x_cols + C::x_begin;
    auto* y = args.ptr<typename C::Y>(positions + (C::from_positions ? 1 : 0)) + r * (C::H * C::D);
    for (int p = consumer_thread() % S::kThreads; p < S::kThreads; p += kConsumers) {
      const int pair = p % S::kRuns * S::kRun, run = C::interleaved ? 2 * pair : pair;
      Angles angles;
      // All loads of a batch come before its stores, and those of the first batch before the
      // angles.
      for (i64 h = p / S::kRuns; h < C::H; h += S::kBatch * S::kHeads) {
        RopePairs<C> pairs[S::kBatch];
        MACO_UNROLL
        for (int i = 0; i < S::kBatch; ++i)
          if (h + i * S::kHeads < C::H) pairs[i].load(x + (h + i * S::kHeads) * C::D + run);
        if (h < S::kHeads) angles.find(args, position, pair);
        MACO_UNROLL
        for (int i = 0; i < S::kBatch; ++i)
          if (h + i * S::kHeads < C::H)
            pairs[i].store(y + (h + i * S::kHeads) * C::D + run, angles);
      }
    }
    if constexpr (C::R < C::D) keep_rest<C>(x, y);
  }
}

// Operands x [rows,x_cols], of which H*D columns from x_begin on count, (positions [rows] i32), y
// [rows,H*D]. C: X, Y, rows, x_cols, x_begin, H, D, R, BR, interleaved, from_positions, position
// (of row 0, unless from_positions), factor (of cosines and sines), and turns(i): how far pair i
// rotates from one position to the next, in units of 2^-64 rotations.
template <class C>
MACO_OP void rope(Context& ctx, Args args, u32 tile) {
  turn_rows<C, PositionAngles<C>, false>(ctx, args, tile, 1);
}

// Operands x, frequencies [R/2] f32 in radians, (positions), y. C: as for rope, without turns.
template <class C>
MACO_OP void rope_frequencies(Context& ctx, Args args, u32 tile) {
  turn_rows<C, FrequencyAngles<C>, false>(ctx, args, tile, 2);
}

// Operands x, cosines and sines [limit,table_cols] of T, (positions), y. C: as for rope, with T,
// table_cols (R or R / 2) and limit in place of turns.
template <class C>
MACO_OP void rope_tables(Context& ctx, Args args, u32 tile) {
  turn_rows<C, TableAngles<C>, true>(ctx, args, tile, 3);
}

}  // namespace maco::ops
