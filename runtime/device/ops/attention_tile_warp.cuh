// attention_tile_warp.cuh: the rows of a task that a warp has, as fragments of its lanes.

namespace maco::ops {

template <class C, int kOnce = TileShape<C>::kKeys>
struct WarpRows {
  using S = TileShape<C>;
  static constexpr int kKeys = kOnce;  // for so many keys a warp has scores at once
  using Scores = float[kKeys / 8][4];
  using X = typename C::X;
  using Y = typename C::Y;
  static constexpr bool kBf16 = is_same<X, bf16>;
  static_assert(kWarpLanes == 1 || S::kRows <= kTileRows * kWarps, "each warp has one fragment");
  static_assert(kWarps * kTileRows * kLineBytes <= kScratchBytes, "each warp has its lines");
  static constexpr int kWindow = (int)C::window;

  const AttentionTile<C>& t;
  const int thread = task_thread(), lane = thread & 31, own_warp = (int)((u32)thread >> 5);
  u32 q[S::kSteps][4];
  // For rows lane / 4 and that + 8: the score (not to base 2) to which weights are relative, this
  // lane's sum of weights, and its sum of weighted values.
  float top[2] = {S::kNone, S::kNone}, total[2] = {}, sum[2 * S::kSteps][4] = {};
  Scores score;
  // Up to which keys the two rows see, and the warp's first and last row; with a window each sees
  // kWindow of them.
  int limits[2], fewest, most;

  MACO_FN explicit WarpRows(const AttentionTile<C>& tile) : t(tile) {
    limits[0] = limit(row(0));
    limits[1] = limit(row(1));
    fewest = limit(0);
    // A warp behind the last row has nothing to do.
    most = own_warp * kTileRows < t.rows * C::HB ? limit(kTileRows - 1) : 0;
  }

  MACO_FN int matrix() const { return lane >> 3; }
  MACO_FN int line() const { return lane & 7; }
  MACO_FN int row(int half) const { return (lane >> 2) + 8 * half; }
  MACO_FN int column(int j, int e) const { return j * 8 + (lane & 3) * 2 + (e & 1); }
  // Missing rows count as the last one.
  MACO_FN int limit(int r) const {
    return (int)t.limit(least((own_warp * kTileRows + r) / C::HB, t.rows - 1));
  }
  MACO_FN char* lines(char* scratch) const { return scratch + own_warp * (kTileRows * kLineBytes); }
  // Calls f(line, chunk, row, first column) for each chunk of a group that the lane moves between
  // its warp's lines and the rows of a matrix [.., kCols].
  template <i64 kCols, class F>
  MACO_FN void each_chunk(int group, F f) const {
    MACO_UNROLL
    for (int i = 0; i < kTileRows * kChunk / kWarpLanes; ++i) {
      const int at = i * kWarpLanes + lane, r = own_warp * kTileRows + at / kChunk;
      const int d = group * kBlockK + at % kChunk * kChunk;
      f(swizzled(at / kChunk, at % kChunk), d < S::D && r / C::HB < t.rows,
        (t.first + r / C::HB) * kCols + (t.head + r % C::HB) * C::D + d);
    }
  }

  MACO_FN void load_queries(const X* from, char* scratch) {
    char* own = lines(scratch);
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) {
      each_chunk<C::q_cols>(g, [&](int to, bool there, i64 at) {
        *(Vec<X, kChunk>*)(own + to) = there ? gload_vec<kChunk>(from + at) : Vec<X, kChunk>{};
      });
      warp_sync();
      MACO_UNROLL
      for (int s = 4 * g; s < 4 * g + 4 && s < S::kSteps; ++s)
        load_matrices<false>(
            q[s], own + swizzled((matrix() & 1) * 8 + line(), s % 4 * 2 + (matrix() >> 1)));
      warp_sync();
    }
  }

  MACO_FN void score_keys(const char* keys) {
    MACO_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) score[j][e] = 0;
    }
    MACO_UNROLL
    for (int s = 0; s < S::kSteps; ++s) {
      MACO_UNROLL
      for (int j = 0; j < kKeys / 8; j += 2) {
        u32 k[4];
        load_matrices<false>(
            k, keys + swizzled(s / 4 * S::kKeys + j * 8 + (matrix() >> 1) * 8 + line(),
                               s % 4 * 2 + (matrix() & 1)));
        multiply_matrices<kBf16>(score[j], q[s], k[0], k[1]);
        multiply_matrices<kBf16>(score[j + 1], q[s], k[2], k[3]);
      }
    }
  }

  // The largest of this lane's scores for each row. The two rows alternate, here and below: one
  // alone would mostly wait for its own results.
  MACO_FN void lane_tops(const Scores& score, float (&high)[2]) const {
    constexpr int kApart = 4;  // maxima that don't wait for each other
    float highs[kApart][2];
    MACO_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      MACO_UNROLL
      for (int half = 0; half < 2; ++half) {
        float& most = highs[j % kApart][half];
        const float pair = fmax(score[j][2 * half], score[j][2 * half + 1]);
        most = j < kApart ? pair : fmax(most, pair);
      }
    }
    MACO_UNROLL
    for (int half = 0; half < 2; ++half) {
      high[half] = S::kNone;
      MACO_UNROLL
      for (int i = 0; i < kApart && i < kKeys / 8; ++i)
        high[half] = fmax(high[half], highs[i][half]);
    }
  }
  MACO_FN float base2_top(int half) const { return fmul(top[half], S::kUnit); }
  // Whether a row's largest score, or one lane's, has outgrown the score to which weights are
  // relative.
  MACO_FN bool outgrows(float high, int half) const {
    return !(fsub(fmul(high, S::kUnit), base2_top(half)) <= S::kSlack);
  }
  MACO_FN void weigh_all(const Scores& from, Scores& to, const float (&factor)[2],
                         const float (&summand)[2], float (&block)[2]) const {
    MACO_UNROLL
    for (int half = 0; half < 2; ++half) block[half] = 0;
    MACO_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) {
        to[j][e] = S::weight(from[j][e], factor[e / 2], summand[e / 2]);
        block[e / 2] = fadd(block[e / 2], to[j][e]);
      }
    }
  }
  // Updates the tops of rows whose largest scores have outgrown them, and makes large scores fit
  // for weigh_all.
  MACO_FN void follow_tops(Scores& score, float (&high)[2], float (&shrink)[2], float (&factor)[2],
                           float (&summand)[2]) {
    MACO_UNROLL
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      MACO_UNROLL
      for (int half = 0; half < 2; ++half)
        high[half] = fmax(high[half], shuffle_xor(high[half], lanes));
    }
    bool large[2];
    MACO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float before = base2_top(half);
      if (outgrows(high[half], half)) top[half] = high[half];
      high[half] = base2_top(half);
      shrink[half] = fexp2(fsub(before, high[half]));
      summand[half] = fsub(S::kLift, high[half]);
      large[half] = !S::is_small(high[half]);
    }
    // Rows with large scores first subtract what they have in common.
    if (warp_any(large[0] || large[1])) {
      MACO_UNROLL
      for (int j = 0; j < kKeys / 8; ++j) {
        MACO_UNROLL
        for (int e = 0; e < 4; ++e)
          if (large[e / 2]) score[j][e] = fsub(fmul(score[j][e], S::kUnit), high[e / 2]);
      }
      MACO_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (!large[half]) continue;
        factor[half] = 1;
        summand[half] = S::kLift;
      }
    }
  }
  // Turns scores into weights; with kMasked, keys that a row doesn't see get 0. `begin`: the first
  // key. Returns whether the sums so far have to shrink, and by how much.
  //
  // Weights are relative to the row's largest score at the time when it last grew by more than
  // kSlack. This reference is nearly always known before any lane has looked at the scores.
  // kAtOnce: weights are computed while lanes look, and again if the reference has grown. Otherwise
  // `weights` may be `score`.
  template <bool kMasked, bool kAtOnce>
  MACO_FN bool weigh_scores(Scores& score, Scores& weights, int begin, float (&shrink)[2]) {
    MACO_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) {
        score[j][e] = S::scaled(score[j][e]);
        const int end = limits[e / 2] - begin;
        if (kMasked && (column(j, e) >= end || (kWindow > 0 && column(j, e) < end - kWindow)))
          score[j][e] = unseen();
      }
    }
    float factor[2] = {S::kUnit, S::kUnit}, high[2], summand[2], block[2];
    MACO_UNROLL
    for (int half = 0; half < 2; ++half) {
      shrink[half] = 1;
      summand[half] = fsub(S::kLift, base2_top(half));
    }
    if (kAtOnce) weigh_all(score, weights, factor, summand, block);
    lane_tops(score, high);
    bool grown = false;
    MACO_UNROLL
    for (int half = 0; half < 2; ++half)
      grown |= outgrows(high[half], half) | !S::is_small(base2_top(half));
    grown = warp_any(grown);
    if (grown) {
      follow_tops(score, high, shrink, factor, summand);
      if (kAtOnce) weigh_all(score, weights, factor, summand, block);
    }
    if (!kAtOnce) weigh_all(score, weights, factor, summand, block);
    MACO_UNROLL
    for (int half = 0; half < 2; ++half)
      total[half] = fadd(fmul(total[half], shrink[half]), block[half]);
    return grown;
  }
  MACO_FN void shrink_sums(const float (&shrink)[2]) {
    MACO_UNROLL
    for (int n = 0; n < 2 * S::kSteps; ++n) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) sum[n][e] = fmul(sum[n][e], shrink[e / 2]);
    }
  }
  template <bool kMasked>
  MACO_FN void weigh_keys(int begin) {
    float shrink[2];
    if (weigh_scores<kMasked, false>(score, score, begin, shrink)) shrink_sums(shrink);
  }

  static MACO_FN u32 pair(float a, float b) {
    return bits_as<u32>(Vec<X, 2>{{from_acc<X>(a), from_acc<X>(b)}});
  }
  static MACO_FN float rest(float x) { return fsub(x, to_acc(from_acc<X>(x))); }
  // Loads the sixteen values whose weights are scores j and j + 1.
  MACO_FN void load_values(u32 (&v)[4], const char* values, int j, int n) const {
    load_matrices<true>(v, values + swizzled(n / 4 * S::kKeys + j * 8 + (matrix() & 1) * 8 + line(),
                                             n % 4 * 2 + (matrix() >> 1)));
  }
  template <class Keep>
  MACO_FN void add_step(const char* values, int j, Keep keep) {
    u32 high[4], low[4];
    MACO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float a = score[j + i / 2][i % 2 * 2], b = score[j + i / 2][i % 2 * 2 + 1];
      high[i] = pair(a, b);
      if constexpr (S::kTwice) low[i] = pair(rest(a), rest(b));
    }
    MACO_UNROLL
    for (int n = 0; n < S::kSteps; ++n) {
      u32 v[4];
      load_values(v, values, j, n);
      keep(v);
      multiply_matrices<kBf16>(sum[2 * n], high, v[0], v[1]);
      multiply_matrices<kBf16>(sum[2 * n + 1], high, v[2], v[3]);
      if constexpr (S::kTwice) {
        // The rest of a weight may be 0 or less, and isn't multiplied by values that aren't finite.
        MACO_UNROLL
        for (int i = 0; i < 4; ++i) v[i] &= ~((not_finite(v[i]) >> 15) * 0xffffu);
        multiply_matrices<kBf16>(sum[2 * n], low, v[0], v[1]);
        multiply_matrices<kBf16>(sum[2 * n + 1], low, v[2], v[3]);
      }
    }
  }
  MACO_FN void add_values(const char* values) {
    MACO_UNROLL
    for (int j = 0; j < kKeys / 8; j += 2) add_step(values, j, [](u32(&)[4]) {});
  }
  // The same where not all rows see all values.
  MACO_FN void add_seen_values(const char* values, int begin, char* scratch) {
    MACO_UNROLL
    for (int j = 0; j < kKeys / 8; j += 2) {
      const int all = (int)least(fewest - begin - j * 8, 16);  // that all rows see
      const int some = (int)least(most - begin - j * 8, 16);   // that one of them sees
      if (some <= 0) break;
      const int hidden = fewest - kWindow - begin - j * 8;  // with a window: that no row sees
      if (kWindow > 0 && hidden >= 16) continue;
      // This lane has two keys of a fragment's values, and the two that are 8 behind. Values that
      // no row sees count as zero.
      u32 kept[2];
      MACO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int at = i * 8 + (lane & 3) * 2;
        kept[i] = (at < some ? 0xffffu : 0u) | (at + 1 < some ? 0xffff0000u : 0u);
        if (kWindow > 0)
          kept[i] &= (at >= hidden ? 0xffffu : 0u) | (at + 1 >= hidden ? 0xffff0000u : 0u);
      }
      const auto keep = [&](u32(&v)[4]) {
        MACO_UNROLL
        for (int i = 0; i < 4; ++i) v[i] &= kept[i % 2];
      };
      const bool apart =
          all < some || (kWindow > 0 && most > fewest && most - kWindow > begin + j * 8);
      u32 odd = 0;  // some row may see a value that isn't finite, which another row doesn't see
      if (apart) {
        MACO_UNROLL
        for (int n = 0; n < S::kSteps; ++n) {
          u32 v[4];
          load_values(v, values, j, n);
          keep(v);
          MACO_UNROLL
          for (int i = 0; i < 4; ++i) odd |= not_finite(v[i]);
        }
      }
      if (apart && warp_any(odd != 0)) {
        add_each(values, begin + j * 8, j, some, scratch);
      } else {
        add_step(values, j, keep);
      }
    }
  }
  // Not 0 if one of the two elements is an infinity or NaN: adding 1 to the exponent overflows it.
  static MACO_FN u32 not_finite(u32 pair) {
    constexpr u32 kExponents = kBf16 ? 0x7f807f80u : 0x7c007c00u;
    constexpr u32 kOnes = kBf16 ? 0x00800080u : 0x04000400u;
    return ((pair & kExponents) + kOnes) & 0x80008000u;
  }
  // Adds value by value: a value that a row doesn't see may be anything, and 0 * infinity is not 0.
  MACO_FN void add_each(const char* values, int key, int j, int count, char* scratch) {
    float* weights = (float*)lines(scratch);  // by key
    warp_sync();
    MACO_UNROLL
    for (int i = 0; i < 2; ++i) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) weights[column(i, e) * kTileRows + row(e / 2)] = score[j + i][e];
    }
    warp_sync();
    for (int i = 0; i < count; ++i) {
      MACO_UNROLL
      for (int n = 0; n < 2 * S::kSteps; ++n) {
        const auto v =
            ((const Vec<X, 2>*)(values + swizzled(n / 8 * S::kKeys + j * 8 + i, n % 8)))[lane & 3];
        MACO_UNROLL
        for (int e = 0; e < 4; ++e)
          if (key + i < limits[e / 2] && (kWindow == 0 || key + i >= limits[e / 2] - kWindow))
            sum[n][e] = ffma(weights[i * kTileRows + row(e / 2)], to_acc(v.v[e % 2]), sum[n][e]);
      }
    }
  }

  MACO_FN void run(Context& ctx, const X*) {
    PageTaker pages(ctx);
    for (int begin = (int)t.begin(), last = (int)t.last; begin < last; begin += kKeys) {
      const bool some = begin < most && (kWindow == 0 || begin + kKeys > fewest - kWindow);
      const bool all = some && begin + kKeys <= fewest && (kWindow == 0 || begin >= most - kWindow);
      const char* keys = pages.take();
      if (some) score_keys(keys);
      pages.release();
      if (all) {
        weigh_keys<false>(begin);
      } else if (some) {
        weigh_keys<true>(begin);
      }
      const char* values = pages.take();
      if (all) {
        add_values(values);
      } else if (some) {
        add_seen_values(values, begin, ctx.scratch());
      }
      pages.release();
    }
    pages.finish();
  }

  MACO_FN void store(Y* y, char* scratch) {
    MACO_UNROLL
    for (int half = 0; half < 2; ++half) {
      total[half] = fadd(total[half], shuffle_xor(total[half], 1));
      total[half] = fadd(total[half], shuffle_xor(total[half], 2));
      // A row that sees nothing has sums of 0.
      total[half] = limits[half] > 0 ? finverse(total[half]) : 0.0f;
    }
    const auto result = [&](int n, int e) { return fmul(sum[n][e], total[e / 2]); };
    if constexpr (sizeof(Y) == 2) {
      char* own = lines(scratch);
      MACO_UNROLL
      for (int g = 0; g < S::kGroups; ++g) {
        warp_sync();
        MACO_UNROLL
        for (int n = 8 * g; n < 8 * g + 8 && n < 2 * S::kSteps; ++n) {
          MACO_UNROLL
          for (int half = 0; half < 2; ++half)
            ((Vec<Y, 2>*)(own + swizzled(row(half), n % 8)))[lane & 3] =
                Vec<Y, 2>{{from_acc<Y>(result(n, 2 * half)), from_acc<Y>(result(n, 2 * half + 1))}};
        }
        warp_sync();
        each_chunk<C::HQ * C::D>(g, [&](int from, bool there, i64 at) {
          if (there) gstore_vec<kChunk>(y + at, *(const Vec<Y, kChunk>*)(own + from));
        });
      }
    } else {
      MACO_UNROLL
      for (int n = 0; n < S::D / 8; ++n) {
        MACO_UNROLL
        for (int half = 0; half < 2; ++half) {
          const i64 r = own_warp * kTileRows + row(half);
          if (r / C::HB < t.rows)
            gstore_vec<2>(y + (t.first + r / C::HB) * (C::HQ * C::D) + (t.head + r % C::HB) * C::D +
                              column(n, 0),
                          Vec<Y, 2>{{from_acc<Y>(result(n, 2 * half)),
                                     from_acc<Y>(result(n, 2 * half + 1))}});
        }
      }
    }
  }
};

}  // namespace maco::ops
