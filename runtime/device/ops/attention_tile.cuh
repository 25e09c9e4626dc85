// attention_tile: softmax(q k^T * scale) v of many query rows, on tensor cores. A task has some
// rows of some heads that share keys; row r / HB and head r % HB of the task are row r of the tile.
// A warp has sixteen rows of the tile. Each warp goes over the blocks of keys that its rows see,
// which come through pages (attention_pages.cuh), with an online softmax in f32: a row has the same
// bits in every tile. With a window a task begins with the block of the first key that one of its
// rows sees. Weights are rounded to the type of the values or, if the result has another type, to
// twice its bits.

namespace maco::ops {

constexpr int kTileRows = 16;  // of a warp: those of a fragment
// The score of a key that a row doesn't see: less than any score that counts.
MACO_FN float unseen() { return float_of(0xff800000u); }

template <class C>
struct TileShape : HeadGroups<C> {
  using X = typename C::X;
  static constexpr int kRows = (int)(C::HB * C::BT);
  // Keys of a block, which has a page of keys and a page of values for each group.
  static constexpr int kKeys = kPageLines / HeadGroups<C>::kGroups;
  static constexpr bool kTwice = !is_same<X, typename C::Y>;  // whether weights have twice the bits
  // Softmax to base 2: 2^(kUnit * score). A negative scale would turn the largest score into the
  // smallest, so scores are first multiplied by it, as capped ones are.
  static constexpr double kLog2e = 1.4426950408889634;
  static constexpr bool kScaled = C::softcap > 0 || !((float)(C::scale * kLog2e) > 0);
  static constexpr float kUnit = (float)(kScaled ? kLog2e : C::scale * kLog2e);
  // A score equal to the one to which weights are relative has weight 2^kLift, and none more than
  // 2^(kLift + kSlack): f16 has few exponents below 1.
  static constexpr float kLift = is_same<X, f16> ? 12.0f : 0.0f;
  static constexpr float kSlack = is_same<X, f16> ? 3.0f : 8.0f;
  static MACO_FN float scaled(float score) {
    return kScaled ? near_score_of_product<C, !kTwice>(score) : score;
  }
  // The score to base 2.
  static MACO_FN float to_base2(float score) { return fmul(scaled(score), kUnit); }
  // The weight of a score to base 2, relative to `high`: for `high` itself exactly 2^kLift, however
  // large it is.
  static MACO_FN float weight(float score, float high) {
    return fexp2(fadd(fsub(score, high), kLift));
  }
  // The weight of a score to any base, by a factor and a summand. The summand is rounded like
  // `high`, the score to which weights are relative, to base 2. For `high` itself the weight is
  // nearly 2^kLift if is_small(high).
  static MACO_FN float weight(float score, float factor, float summand) {
    return fexp2(ffma(score, factor, summand));
  }
  // The top of a row that sees nothing: below every score, and finite to base 2.
  static constexpr float kNone = 0.5f * (kUnit > 1 ? kLeast / kUnit : kLeast);
  static MACO_FN bool is_small(float high) { return high > -4096.0f && high < 4096.0f; }
  static_assert(kKeys % 16 == 0, "blocks are whole steps");
};

// The rows, heads and keys of a task.
template <class C>
struct AttentionTile {
  i64 head, kv_head, first, rows, length, sees, last;
  MACO_FN AttentionTile(Context& ctx, u32 tile) {
    constexpr i64 kBlocks = C::HQ / C::HB;  // of heads
    head = tile % kBlocks * C::HB;
    kv_head = head / (C::HQ / C::HKV);
    first = (i64)(tile / kBlocks) * C::BT;
    const i64 all = C::rows::get(ctx);
    rows = least(C::BT, all - first);
    length = C::length::get(ctx);
    // Row t sees keys up to sees + t if causal, else all keys.
    sees = C::causal ? length - all + first + 1 : length;
    last = rows > 0 ? limit(rows - 1) : 0;
  }
  MACO_FN i64 limit(i64 t) const { return C::causal ? sees + t : length; }
  // The begin of the block with the first key that a row sees.
  MACO_FN i64 begin() const { return round_down(first_seen<C>(limit(0)), TileShape<C>::kKeys); }
};

// ---- a lane among others: fragments -----------------------------------------

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

// ---- groups of four warps ----------------------------------------------------

// Four warps together multiply 64 rows by what bulk copies brought. All values of a block count,
// with weight 0 for values that a row doesn't see. Values behind the last key are replaced by
// zeros, so that garbage has no effect. If a value that only some rows see isn't finite, each value
// is added by itself.
//
// Keys go in chunks of 64, or of 32 for long heads. While scores of a chunk become weights, the
// next chunk's scores are multiplied, and the values of the chunk before are weighted: neither
// tensor cores nor exponentials wait for the other.
template <class C>
constexpr int kKeysAtOnce = (int)least(kBlockK, TileShape<C>::kKeys);
template <class C>
struct GroupRows : WarpRows<C, kKeysAtOnce<C>> {
  using Base = WarpRows<C, kKeysAtOnce<C>>;
  using S = TileShape<C>;
  using X = typename C::X;
  using Scores = typename Base::Scores;
  static constexpr int kRows = 64;
  static constexpr int kGroupBytes = kWarps * kTileRows * kLineBytes;
  static constexpr u32 kUnit = 16;                                                 // of operands
  static constexpr int kChunkKeys = Base::kKeys, kChunks = S::kKeys / kChunkKeys;  // of a block
  static constexpr u32 kChunkUnits = kChunkKeys * kLineBytes / kUnit;
  static constexpr int kPairKeys = 2 * kChunkKeys;
  static constexpr bool kAtOnce = S::kGroups == 1;  // else there are too few registers
  static_assert(!S::kTwice, "weights have the bits of values");
  static_assert(kChunks == 1 || kChunks == 2, "a pair of chunks is two blocks, or one");
  // Chunks overlap if the ring holds the pages that are needed at once. If each chunk has pages of
  // its own, these are from the values of a chunk to the values of the next but one; else from the
  // values of a block to those of the next. Otherwise blocks follow one another.
  static constexpr u32 kPagesAtOnce = kChunks == 1 ? 5 : 3;
  static constexpr bool kOverlaps = kRingPages >= kPagesAtOnce;
  static_assert(kRingPages >= 2, "keys and values of a block are held");
  static_assert(S::kGroups * kGroupBytes <= kScratchBytes, "queries stay in the scratch memory");
  using Base::kWindow;
  using Base::score;
  using Base::sum;
  using Base::t;
  int some_see;     // keys up to which some row of the group sees
  u32 queries = 0;  // the operand: lines of all rows of the tile, group by group of the head

  MACO_FN explicit GroupRows(const AttentionTile<C>& tile) : Base(tile) {
    const int first = this->own_warp / 4 * kRows;  // of the tile's rows
    some_see =
        first < t.rows * C::HB ? (int)t.limit(least((first + kRows - 1) / C::HB, t.rows - 1)) : 0;
  }
  // Whether a row of the group sees a key before `end`.
  MACO_FN bool sees_before(int end) const {
    return kWindow == 0 || end > (int)t.limit(this->own_warp / 4 * kRows / C::HB) - kWindow;
  }

  MACO_FN void load_queries(const X* from, char* scratch) {
    // All of them at once. (Missing rows may hold anything. What lies behind a head in its last
    // step may not, because it is multiplied by zeros of keys.)
    const i64 first = t.first * C::q_cols + t.head * C::D;
    Vec<X, kChunk> chunks[S::kGroups][kTileRows * kChunk / kWarpLanes];
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) {
      int n = 0;
      this->template each_chunk<C::q_cols>(g, [&](int, bool there, i64 at) {
        Vec<X, kChunk>& chunk = chunks[g][n++];
        chunk = gload_vec<kChunk>(from + (there ? at : first));
        if (S::D % 16 != 0 && !there) chunk = {};
      });
    }
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) {
      char* own = this->lines(scratch + g * kGroupBytes);
      int n = 0;
      this->template each_chunk<C::q_cols>(
          g, [&](int to, bool, i64) { *(Vec<X, kChunk>*)(own + to) = chunks[g][n++]; });
    }
    operands_begin();
    cta_sync();
    queries =
        (u32)warp_uniform((int)wgmma_operand(scratch + this->own_warp / 4 * kRows * kLineBytes));
  }

  // A page as an operand. This takes a trip through the shuffle unit, so it should be requested
  // early.
  static MACO_FN u32 operand(const PageTaker& pages, PageUse page) {
    return (u32)warp_uniform(
        (int)wgmma_operand<S::kKeys>(pages.pages + (i64)page.slot * Cta::kPageBytes));
  }
  // These two begin multiplications for a chunk, behind a wgmma_begin.
  MACO_FN void score_keys(Scores& scores, u32 keys) {
    constexpr u32 kStep = 32 / kUnit, kGroupUnits = S::kKeys * kLineBytes / kUnit;
    wgmma_new<kChunkKeys, Base::kBf16>(scores, queries, keys);
    MACO_UNROLL
    for (int s = 1; s < S::kSteps; ++s)
      wgmma<kChunkKeys, Base::kBf16, 0, 0>(scores,
                                           queries + s / 4 * (kGroupBytes / kUnit) + s % 4 * kStep,
                                           keys + s / 4 * kGroupUnits + s % 4 * kStep);
    wgmma_end();
  }
  // Weights in the form that multiplications take.
  using Weights = u32[kChunkKeys / 16][4];
  MACO_FN void pack_weights(const Scores& scores, Weights& weights) const {
    MACO_UNROLL
    for (int s = 0; s < kChunkKeys / 16; ++s) {
      MACO_UNROLL
      for (int i = 0; i < 4; ++i) {
        weights[s][i] =
            Base::pair(scores[2 * s + i / 2][i % 2 * 2], scores[2 * s + i / 2][i % 2 * 2 + 1]);
        settle(weights[s][i]);  // else it is computed between multiplications, which then wait
      }
    }
  }
  MACO_FN void add_values(const Weights& weights, u32 values) {
    constexpr u32 kStep = 16 * kLineBytes / kUnit;
    MACO_UNROLL
    for (int s = 0; s < kChunkKeys / 16; ++s)
      wgmma_rows<16 * S::kSteps, Base::kBf16>(sum, weights[s], values + s * kStep);
    wgmma_end();
  }
  // Scores are dead from here on. Registers would be kept for them if some rows have none.
  MACO_FN void forget_scores() {
    MACO_UNROLL
    for (int j = 0; j < kChunkKeys / 8; ++j) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) forget(score[j][e]);
    }
  }

  // The same value by value, as in WarpRows.
  MACO_FN void add_each_value(const char* values, int begin, char* scratch) {
    MACO_UNROLL
    for (int j = 0; j < kChunkKeys / 8; j += 2) {
      const int count = (int)least(some_see - begin - j * 8, 16);
      if (count > 0) this->add_each(values, begin + j * 8, j, count, scratch);
    }
  }

  // All consumers replace the values of a block behind the last key by zeros. Returns whether
  // another value isn't finite.
  MACO_FN bool tidy_values(char* values, int begin) const {
    u32 odd = 0;
    MACO_UNROLL
    for (int i = 0; i < kPageLines * kChunk / kConsumers; ++i) {
      const int at = i * kConsumers + this->thread;
      auto* chunk = (Vec<u32, 4>*)(values + at * 16);
      if (begin + at / kChunk % S::kKeys < t.length) {
        const Vec<u32, 4> v = *chunk;
        MACO_UNROLL
        for (int e = 0; e < 4; ++e) odd |= Base::not_finite(v.v[e]);
      } else {
        *chunk = {};
      }
    }
    if (begin + S::kKeys > t.length) operands_begin();
    return cta_any(odd != 0);
  }

  // Where a chunk lies.
  struct Place {
    PageUse keys, values;    // pages
    u32 keys_at, values_at;  // operands
  };
  // Goes over chunks in order; takes a block's pages with its first chunk.
  struct ChunkTaker {
    PageTaker& pages;
    // For the next pages: their operands, and whether they have arrived.
    u32 keys_at, values_at;
    bool landed;
    MACO_FN explicit ChunkTaker(PageTaker& p) : pages(p) { look(); }
    MACO_FN void look() {
      // The ring must hold two pages more than are in use by then, or they can't have arrived.
      landed = kRingPages >= kPagesAtOnce + 2 && pages.landed(2);
      PageUse page = pages.next_page();
      keys_at = operand(pages, page);
      page.next();
      values_at = operand(pages, page);
    }
    MACO_FN Place take_block() {
      if (!landed) pages.await(2);
      const PageUse keys = pages.take_landed();
      return {keys, pages.take_landed(), keys_at, values_at};
    }
    // The chunk behind `place`; kOdd: the second of a pair.
    template <bool kOdd>
    MACO_FN Place after(const Place& place) {
      if constexpr (kOdd && kChunks == 2) {
        return {place.keys, place.values, place.keys_at + kChunkUnits,
                place.values_at + kChunkUnits};
      } else {
        return take_block();
      }
    }
  };
  // Whether the first chunk of a pair is the last of its block; the second always is.
  static constexpr bool kEvenIsLast = kChunks == 1;

  // Computes the weights of a chunk behind multiplications that have begun. These have then ended,
  // and sums and weights are relative to the same score. The first chunk of a row would be weighted
  // twice.
  template <bool kFirst>
  MACO_FN void weigh_chunk(Scores& scores, Weights& weights) {
    constexpr bool kApart = kAtOnce && !kFirst;
    float shrink[2];
    Scores apart;
    Scores& unpacked = kApart ? apart : scores;
    // The compiler would move a wait that doesn't depend on this computation in front of it.
    if (this->template weigh_scores<false, kApart>(scores, unpacked, 0, shrink)) {
      wgmma_wait();
      this->shrink_sums(shrink);
    } else {
      wgmma_wait();
    }
    pack_weights(unpacked, weights);
  }

  // The next `count` keys, in whole pairs of chunks; all rows see all of them.
  MACO_FN void add_seen_chunks(PageTaker& pages, int count) {
    ChunkTaker taker(pages);
    Scores odd;
    Weights weights;
    Place before, now = taker.take_block();
    taker.look();
    wgmma_begin();
    score_keys(score, now.keys_at);
    wgmma_wait();
    if (kEvenIsLast) pages.release_page(now.keys);
    Place next = taker.template after<true>(now);
    if (kEvenIsLast) taker.look();
    wgmma_begin();
    score_keys(odd, next.keys_at);
    weigh_chunk<true>(score, weights);
    pages.release_page(next.keys);
    for (int begin = kPairKeys; begin < count; begin += kPairKeys) {
      before = now, now = next, next = taker.template after<false>(now);
      wgmma_begin();
      add_values(weights, before.values_at);
      score_keys(score, next.keys_at);
      taker.look();
      weigh_chunk<false>(odd, weights);
      if (kEvenIsLast) {
        pages.release_page(before.values);
        pages.release_page(next.keys);
      }
      before = now, now = next, next = taker.template after<true>(now);
      if (kEvenIsLast) taker.look();
      wgmma_begin();
      add_values(weights, before.values_at);
      score_keys(odd, next.keys_at);
      weigh_chunk<false>(score, weights);
      pages.release_page(before.values);
      pages.release_page(next.keys);
    }
    wgmma_begin();
    add_values(weights, now.values_at);
    weigh_chunk<false>(odd, weights);
    if (kEvenIsLast) pages.release_page(now.values);
    wgmma_begin();
    add_values(weights, next.values_at);
    wgmma_wait();
    pages.release_page(next.values);
  }

  // The next block of keys; some rows see some of them.
  MACO_FN void add_block(Context& ctx, PageTaker& pages, int block, const X* q) {
    const u32 keys_at = operand(pages, pages.next_page());
    pages.take();
    const u32 values_at = operand(pages, pages.next_page());
    const char* values = pages.take();
    if (tidy_values((char*)values, block)) {
      add_odd_block(ctx, values, keys_at, block, q);
    } else if (block < some_see && sees_before(block + S::kKeys)) {
      Scores more;
      Weights weights;
      wgmma_begin();
      score_keys(score, keys_at);
      if (kChunks == 2) score_keys(more, keys_at + kChunkUnits);
      wgmma_wait();
      this->template weigh_keys<true>(block);
      pack_weights(score, weights);
      wgmma_begin();
      add_values(weights, values_at);
      if (kChunks == 2 && block + kChunkKeys < some_see) {
        float shrink[2];
        const bool grown =
            this->template weigh_scores<true, false>(more, more, block + kChunkKeys, shrink);
        wgmma_wait();
        if (grown) this->shrink_sums(shrink);
        pack_weights(more, weights);
        wgmma_begin();
        add_values(weights, values_at + kChunkUnits);
      }
      wgmma_wait();
    }
    pages.release();
    pages.release();
  }
  // The same for values that aren't finite.
  MACO_FN void add_odd_block(Context& ctx, const char* values, u32 keys_at, int block, const X* q) {
    MACO_ROLLED
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int begin = block + chunk * kChunkKeys;
      const bool some = begin < some_see && sees_before(begin + kChunkKeys);
      forget_scores();
      if (some) {
        wgmma_begin();
        score_keys(score, keys_at + chunk * kChunkUnits);
        wgmma_wait();
        this->template weigh_keys<true>(begin);
      }
      cta_sync();  // the queries' memory is used for something else for a while
      if (some) add_each_value(values + chunk * (kChunkKeys * kLineBytes), begin, ctx.scratch());
      cta_sync();
      load_queries(q, ctx.scratch());
    }
  }

  MACO_FN void run(Context& ctx, const X* q) {
    const int tile_sees = (int)t.limit(0), last = (int)t.last;  // all rows see this far; one sees
    PageTaker pages(ctx);
    int block = (int)t.begin();
    if constexpr (kWindow > 0) {
      while (block < last) {
        // All rows see the keys from last - kWindow on.
        const int pairs = (tile_sees - block) / kPairKeys;
        if (kOverlaps && block >= last - kWindow && pairs > 0) {
          add_seen_chunks(pages, pairs * kPairKeys);
          block += pairs * kPairKeys;
        } else {
          add_block(ctx, pages, block, q);
          block += S::kKeys;
        }
      }
    } else {
      if constexpr (kOverlaps) {
        if (tile_sees >= kPairKeys) {
          block = tile_sees / kPairKeys * kPairKeys;
          add_seen_chunks(pages, block);
        }
      }
      for (; block < last; block += S::kKeys) add_block(ctx, pages, block, q);
    }
    pages.finish();
    cta_sync();  // before the memory is reused for results
  }
};

// ---- a lane that stands for all ----------------------------------------------

template <class C>
struct LoneRows {
  using S = TileShape<C>;
  using X = typename C::X;
  using Y = typename C::Y;
  static constexpr int kKeysOnce = (int)least(S::kKeys, 32);  // keys

  const AttentionTile<C>& t;
  float q[S::kRows][S::D], top[S::kRows], total[S::kRows] = {}, sum[S::kRows][S::D] = {};
  float score[S::kRows][kKeysOnce];

  MACO_FN explicit LoneRows(const AttentionTile<C>& tile) : t(tile) {
    for (float& x : top) x = kLeast;
  }
  MACO_FN int rows() const { return (int)(t.rows * C::HB); }
  // The place in a matrix [.., cols].
  MACO_FN i64 place(int r, i64 cols) const {
    return (t.first + r / C::HB) * cols + (t.head + r % C::HB) * C::D;
  }
  MACO_FN void load_queries(const X* from, char*) {
    for (int r = 0; r < rows(); ++r)
      for (int d = 0; d < S::D; d += kChunk) {
        const auto chunk = gload_vec<kChunk>(from + place(r, C::q_cols) + d);
        for (int i = 0; i < kChunk; ++i) q[r][d + i] = to_acc(chunk.v[i]);
      }
  }
  static MACO_FN void read_head(float (&to)[S::D], const char* page, int key) {
    for (int d = 0; d < S::D; d += kChunk) {
      const X* chunk =
          (const X*)(page + swizzled(d / kBlockK * S::kKeys + key, d % kBlockK / kChunk));
      for (int i = 0; i < kChunk; ++i) to[d + i] = to_acc(chunk[i]);
    }
  }
  // Adds some keys from `at` on, in the block that begins with key `begin`.
  MACO_FN void add_keys(const char* keys, const char* values, i64 begin, int at) {
    const int most = (int)least(t.last - begin - at, kKeysOnce);
    const auto seen = [&](int r) { return (int)least(t.limit(r / C::HB) - begin - at, most); };
    const auto hidden = [&](int r) {
      return (int)maco::most(first_seen<C>(t.limit(r / C::HB)) - begin - at, 0);
    };
    for (int j = 0; j < most; ++j) {
      float key[S::D];
      read_head(key, keys, at + j);
      for (int r = 0; r < rows(); ++r) {
        float part[kChunk] = {};
        for (int d = 0; d < S::D; d += kChunk)
          for (int i = 0; i < kChunk; ++i) part[i] = ffma(q[r][d + i], key[d + i], part[i]);
        float dot = 0;
        for (int i = 0; i < kChunk; ++i) dot = fadd(dot, part[i]);
        score[r][j] = S::to_base2(dot);
      }
    }
    for (int r = 0; r < rows(); ++r) {
      float high = kLeast;
      for (int j = hidden(r); j < seen(r); ++j) high = fmax(high, score[r][j]);
      high = fmax(high, top[r]);
      if (high != top[r]) {
        const float shrink = fexp2(fsub(top[r], high));
        top[r] = high;
        total[r] = fmul(total[r], shrink);
        for (int d = 0; d < S::D; ++d) sum[r][d] = fmul(sum[r][d], shrink);
      }
      float block = 0;
      for (int j = hidden(r); j < seen(r); ++j) {
        score[r][j] = S::weight(score[r][j], high);
        block = fadd(block, score[r][j]);
        if (!S::kTwice) score[r][j] = round_to<X>(score[r][j]);
      }
      total[r] = fadd(total[r], block);
    }
    for (int j = 0; j < most; ++j) {
      float value[S::D];
      read_head(value, values, at + j);
      for (int r = 0; r < rows(); ++r)
        if (j >= hidden(r) && j < seen(r))
          for (int d = 0; d < S::D; ++d) sum[r][d] = ffma(score[r][j], value[d], sum[r][d]);
    }
  }
  MACO_FN void run(Context& ctx, const X*) {
    PageTaker pages(ctx);
    for (i64 begin = t.begin(); begin < t.last; begin += S::kKeys) {
      const char* keys = pages.take();
      const char* values = pages.take();
      for (int at = 0; at < S::kKeys && begin + at < t.last; at += kKeysOnce)
        add_keys(keys, values, begin, at);
      pages.release();
      pages.release();
    }
    pages.finish();
  }
  MACO_FN void store(Y* y, char*) {
    for (int r = 0; r < rows(); ++r)
      for (int d = 0; d < S::D; ++d)
        gstore(y + place(r, C::HQ * C::D) + d,
               from_acc<Y>(t.limit(r / C::HB) > 0 ? fdiv(sum[r][d], total[r]) : 0.0f));
  }
};

// ---- a task ------------------------------------------------------------------

template <class C>
MACO_OP void attention_tile_load(Context& ctx, Args args, u32 tile) {
  const AttentionTile<C> t(ctx, tile);
  head_load<C, 1, TileShape<C>::kKeys>(ctx, args, t.kv_head, t.begin(), TileShape<C>::kKeys,
                                       t.last);
}

template <class C, class Rows>
MACO_FN void attention_rows(Context& ctx, const Args& args, u32 tile) {
  const AttentionTile<C> t(ctx, tile);
  if (t.rows <= 0) return;
  const auto* q = args.ptr<const typename C::X>(0) + C::q_begin;
  Rows rows(t);
  rows.load_queries(q, ctx.scratch());
  rows.run(ctx, q);
  rows.store(args.ptr<typename C::Y>(3), ctx.scratch());
}
// A function with asynchronous multiplications must be inlined.
template <class C>
MACO_OP void attention_tile_alone(Context& ctx, Args args, u32 tile) {
  attention_rows<C, typename Either<(kWarpLanes == 1), LoneRows<C>, WarpRows<C>>::type>(ctx, args,
                                                                                        tile);
}

// Operands q [rows,q_cols], of which HQ*D columns from q_begin on count, k and v [.., HKV*D], y
// [rows,HQ*D]. C: X (of q, k and v), Y, rows, length, q_cols, q_begin, HQ, HKV, D, HB (heads of a
// task), BT (its rows), causal, boxes, wgmma (by groups of four warps), and the parameters of
// attention_scores.
template <class C>
MACO_FN void attention_tile(Context& ctx, const Args& args, u32 tile) {
  if constexpr (kWarpLanes > 1 && C::wgmma) {
    attention_rows<C, GroupRows<C>>(ctx, args, tile);
  } else {
    attention_tile_alone<C>(ctx, args, tile);
  }
}

}  // namespace maco::ops
