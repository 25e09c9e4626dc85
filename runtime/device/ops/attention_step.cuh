// attention_step: attention of a few new rows over a cache and over themselves, from the result of
// the matmul before it. Queries, keys and values are read from its rows, normed and rotated (rope)
// on the way. A task is some query rows of some heads that share keys, over one of several splits
// of the cache; attention_merge merges the splits.
//
// Keys and values come through pages (attention_pages.cuh), a few blocks of keys in a round: what a
// warp does with its sixteen keys of one block needn't wait for its work on other blocks. Blocks
// begin with the first key that some new row sees. With a window later rows don't see some of the
// keys after it; there are fewer of these than a warp has of a block. Warps, and behind them
// splits, merge their results in order. So the order of additions follows from the number of keys
// and of splits, and from whether a task has more than eight rows.

namespace maco::ops {

constexpr int kStepRows = 16;   // of a task, and the most new rows: those of a fragment
constexpr int kStepChunk = 16;  // keys of a block that a warp has
constexpr int kStepRound = 4;   // blocks

// e to the x, for x of at most 0. Rounding the product changes the result by about |x| units in the
// last place, which matters only for negligible weights.
MACO_FN float step_weight(float x) { return fexp2(fmul(x, 1.44269504f)); }

template <class Rows>
MACO_FN constexpr bool one_row() {
  if constexpr (Rows::is_constant) return Rows::value == 1;
  return false;
}

template <class C>
struct StepShape : HeadGroups<C> {
  using X = typename C::X;
  static constexpr int kKeys = kPageLines;            // of a block: each group has a page
  static constexpr int kRows = (int)(C::HB * C::BT);  // r: row r / HB of the tile, head r % HB
  // In the scratch memory: rows of the queries, of the new keys and of the new values.
  static constexpr int kAreaBytes = HeadGroups<C>::kGroups * kStepRows * kLineBytes;
  // Whether a row may not see an old key that another row sees.
  static constexpr bool kEdge = C::window > 0 && !one_row<typename C::rows>();
  static constexpr int kNorms = C::tabled ? 10 : C::by_radians ? 9 : 8;  // of norms
  static_assert(kRows <= kStepRows && 3 * kAreaBytes <= kScratchBytes, "the new rows have room");
};

// The keys that rows see, among some keys: row t of the tile sees those up to of(t), and with a
// window only from from(t) on.
struct Sight {
  int most;               // some row sees keys up to here
  int first, step, last;  // of(t): first + t * step, but at most `last`
  int moved;              // from(t): t + moved, at least 0
  MACO_FN int of(int t) const { return (int)least(first + t * step, last); }
  MACO_FN int from(int t) const { return (int)maco::most(t + moved, 0); }
};

// ---- a lane among others: fragments -----------------------------------------

MACO_FN int step_matrix() { return warp_lane() >> 3; }
MACO_FN int step_line() { return warp_lane() & 7; }
template <class X>
MACO_FN u32 step_pair(float a, float b) {
  return bits_as<u32>(Vec<X, 2>{{from_acc<X>(a), from_acc<X>(b)}});
}
template <class X>
MACO_FN float step_rest(float x) {
  return fsub(x, to_acc(from_acc<X>(x)));
}

// More than eight rows are the sixteen rows of multiplications' first operand. A lane has two of
// them, row(0) and row(1): the scores of its keys of a block, and the sums of weighted values for
// some elements of the head. share(value, f) combines a value over the lanes with the same rows.
template <class C>
struct TallStep {
  using S = StepShape<C>;
  using X = typename C::X;
  static constexpr bool kBf16 = is_same<X, bf16>;
  static constexpr int kScores = 8, kSums = 2 * S::kSteps, kKept = kStepRows;
  u32 q[S::kSteps][4];

  static MACO_FN int row(int own) { return (warp_lane() >> 2) + 8 * own; }
  static MACO_FN bool leads() { return (warp_lane() & 3) == 0; }
  template <class F>
  static MACO_FN float share(float value, F f) {
    value = f(value, shuffle_xor(value, 1));
    return f(value, shuffle_xor(value, 2));
  }
  static constexpr MACO_FN int row_of_score(int i) { return i % 4 / 2; }
  static MACO_FN int key(int i) { return i / 4 * 8 + (warp_lane() & 3) * 2 + i % 2; }
  static constexpr MACO_FN int row_of_sum(int e) { return e / 2; }
  static MACO_FN int element(int n, int e) { return n * 8 + (warp_lane() & 3) * 2 + e % 2; }
  // The score of key i for row `own`, in the lane that has it.
  static MACO_FN float score_of(const float (&score)[kScores], int i, int own) {
    const float even = i < 8 ? score[2 * own] : score[4 + 2 * own];
    const float odd = i < 8 ? score[2 * own + 1] : score[4 + 2 * own + 1];
    return i % 2 == 0 ? even : odd;
  }
  static MACO_FN int lane_of(int i) { return (warp_lane() & ~3) + i % 8 / 2; }

  // A group's lines of 128 bytes, of which a warp takes sixteen from `first` on.
  MACO_FN void load_queries(int group, const char* lines) {
    MACO_UNROLL
    for (int s = 4 * group; s < 4 * group + 4 && s < S::kSteps; ++s)
      load_matrices<false>(q[s], lines + swizzled((step_matrix() & 1) * 8 + step_line(),
                                                  s % 4 * 2 + (step_matrix() >> 1)));
  }
  MACO_FN void multiply_keys(float (&score)[kScores], int group, const char* keys,
                             int first) const {
    // Alternate steps have sums of their own, which needn't wait for the step before.
    float sums[2][2][4] = {};
    MACO_UNROLL
    for (int s = 4 * group; s < 4 * group + 4 && s < S::kSteps; ++s) {
      u32 k[4];
      load_matrices<false>(k, keys + swizzled(first + (step_matrix() >> 1) * 8 + step_line(),
                                              s % 4 * 2 + (step_matrix() & 1)));
      multiply_matrices<kBf16>(sums[s % 2][0], q[s], k[0], k[1]);
      multiply_matrices<kBf16>(sums[s % 2][1], q[s], k[2], k[3]);
    }
    MACO_UNROLL
    for (int i = 0; i < kScores; ++i) {
      const float part = fadd(sums[0][i / 4][i % 4], sums[1][i / 4][i % 4]);
      score[i] = group == 0 ? part : fadd(score[i], part);
    }
  }
  // The weights rounded to X, and the rests.
  struct Weights {
    u32 high[4] = {}, low[4] = {};
    MACO_FN explicit Weights(const float (&weights)[kScores]) {
      MACO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float a = weights[2 * i], b = weights[2 * i + 1];
        high[i] = step_pair<X>(a, b);
        low[i] = step_pair<X>(step_rest<X>(a), step_rest<X>(b));
      }
    }
  };
  // Values of step n of a group's four: matrices of eight keys by eight elements.
  static MACO_FN void load_values(u32 (&v)[4], const char* values, int first, int n) {
    load_matrices<true>(v, values + swizzled(first + (step_matrix() & 1) * 8 + step_line(),
                                             n % 4 * 2 + (step_matrix() >> 1)));
  }
  static constexpr MACO_FN int keys_of(int i) { return i % 2; }  // of matrix i: which eight
  static MACO_FN void add_step(float (&sum)[kSums][4], int n, const u32 (&weights)[4],
                               const u32 (&v)[4]) {
    multiply_matrices<kBf16>(sum[2 * n], weights, v[0], v[1]);
    multiply_matrices<kBf16>(sum[2 * n + 1], weights, v[2], v[3]);
  }
};

// Up to eight rows are columns of multiplications whose first operand is keys, or elements of
// values; this takes half as many multiplications and registers. A lane has two rows' weights of
// one key, and needs one row's weights of two keys: they are transposed.
template <class C>
struct FewStep {
  using S = StepShape<C>;
  using X = typename C::X;
  static constexpr bool kBf16 = is_same<X, bf16>;
  static constexpr int kScores = 4, kSums = S::kSteps, kKept = S::kRows <= 4 ? 4 : 8;
  u32 q[S::kSteps + S::kSteps % 2][2];

  static MACO_FN int row(int own) { return (warp_lane() & 3) * 2 + own; }
  static MACO_FN bool leads() { return warp_lane() < 4; }
  template <class F>
  static MACO_FN float share(float value, F f) {
    value = f(value, shuffle_xor(value, 4));
    value = f(value, shuffle_xor(value, 8));
    return f(value, shuffle_xor(value, 16));
  }
  static constexpr MACO_FN int row_of_score(int i) { return i % 2; }
  static MACO_FN int key(int i) { return i / 2 * 8 + (warp_lane() >> 2); }
  static constexpr MACO_FN int row_of_sum(int e) { return e % 2; }
  static MACO_FN int element(int n, int e) { return n * 16 + e / 2 * 8 + (warp_lane() >> 2); }
  static MACO_FN float score_of(const float (&score)[kScores], int i, int own) {
    return i < 8 ? score[own] : score[2 + own];
  }
  static MACO_FN int lane_of(int i) { return i % 8 * 4 + (warp_lane() & 3); }

  MACO_FN void load_queries(int group, const char* lines) {
    MACO_UNROLL
    for (int s = 4 * group; s < 4 * group + 4 && s < S::kSteps; s += 2) {
      u32 two[4];
      load_matrices<false>(two, lines + swizzled(step_line(), s % 4 * 2 + step_matrix()));
      MACO_UNROLL
      for (int i = 0; i < 4; ++i) q[s + i / 2][i % 2] = two[i];
    }
  }
  MACO_FN void multiply_keys(float (&score)[kScores], int group, const char* keys,
                             int first) const {
    float sums[2][4] = {};
    MACO_UNROLL
    for (int s = 4 * group; s < 4 * group + 4 && s < S::kSteps; ++s) {
      u32 k[4];
      load_matrices<false>(k, keys + swizzled(first + (step_matrix() & 1) * 8 + step_line(),
                                              s % 4 * 2 + (step_matrix() >> 1)));
      multiply_matrices<kBf16>(sums[s % 2], k, q[s][0], q[s][1]);
    }
    MACO_UNROLL
    for (int i = 0; i < kScores; ++i) {
      const float part = fadd(sums[0][i], sums[1][i]);
      score[i] = group == 0 ? part : fadd(score[i], part);
    }
  }
  struct Weights {
    u32 high[2], low[2];
    MACO_FN explicit Weights(const float (&weights)[kScores]) {
      MACO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float a = weights[2 * i], b = weights[2 * i + 1];
        high[i] = transpose_matrix(step_pair<X>(a, b));
        low[i] = transpose_matrix(step_pair<X>(step_rest<X>(a), step_rest<X>(b)));
      }
    }
  };
  static MACO_FN void load_values(u32 (&v)[4], const char* values, int first, int n) {
    load_matrices<true>(v, values + swizzled(first + (step_matrix() >> 1) * 8 + step_line(),
                                             n % 4 * 2 + (step_matrix() & 1)));
  }
  static constexpr MACO_FN int keys_of(int i) { return i / 2; }
  static MACO_FN void add_step(float (&sum)[kSums][4], int n, const u32 (&weights)[2],
                               const u32 (&v)[4]) {
    multiply_matrices<kBf16>(sum[n], v, weights[0], weights[1]);
  }
};

template <class C>
struct WarpStep : Either<(StepShape<C>::kRows <= 8), FewStep<C>, TallStep<C>>::type {
  using Rows = typename Either<(StepShape<C>::kRows <= 8), FewStep<C>, TallStep<C>>::type;
  using S = StepShape<C>;
  using X = typename C::X;
  static constexpr int kOwn = 2, kScores = Rows::kScores, kSums = Rows::kSums;
  static_assert(S::kKeys <= kStepChunk * kWarps, "a warp has sixteen keys of a page");
  // For each of the lane's rows: the largest score, this lane's sum of weights relative to it, and
  // its sum of weighted values.
  float top[kOwn] = {kLeast, kLeast}, total[kOwn] = {}, sum[kSums][4] = {};
  float score[kStepRound][kScores];

  static MACO_FN int chunk() { return warp() * kStepChunk; }
  // `block`: its number in the round.
  MACO_FN void score_keys(int block, int group, const char* keys, int first, int) {
    this->multiply_keys(score[block], group, keys, first);
  }
  // Turns the scores of kBlocks blocks into weights. seen(block, t): up to which of its keys here
  // row t sees the block. hidden(t): how many keys at the begin of the first block row t doesn't
  // see.
  template <int kBlocks, class Seen, class Hidden>
  MACO_FN void weigh_keys(Seen seen, [[maybe_unused]] Hidden hidden) {
    MACO_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      const int t = Rows::row(own) / (int)C::HB;
      const auto sees = [&](int b, int i) {
        if constexpr (S::kEdge)
          if (b == 0 && Rows::key(i) < hidden(t)) return false;
        return Rows::key(i) < seen(b, t);
      };
      // Blocks have maxima and sums of their own: a single chain over all would be long.
      float highs[kBlocks], sums[kBlocks], high = top[own];
      MACO_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        highs[b] = kLeast;
        MACO_UNROLL
        for (int i = 0; i < kScores; ++i) {
          if (Rows::row_of_score(i) != own) continue;
          float& s = score[b][i];
          s = near_score_of_product<C, false>(s);
          // A NaN reaches the sums anyway.
          highs[b] = sees(b, i) ? fmax(highs[b], s) : highs[b];
        }
      }
      MACO_UNROLL
      for (int b = 0; b < kBlocks; ++b) high = fmax(high, highs[b]);
      high = Rows::share(high, [](float x, float y) { return fmax(x, y); });
      const float shrink = step_weight(fsub(top[own], high));
      float all = fmul(total[own], shrink);
      MACO_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        sums[b] = 0;
        MACO_UNROLL
        for (int i = 0; i < kScores; ++i) {
          if (Rows::row_of_score(i) != own) continue;
          float& s = score[b][i];
          s = step_weight(fsub(s, high));
          s = sees(b, i) ? s : 0.0f;
          sums[b] = fadd(sums[b], s);
        }
      }
      MACO_UNROLL
      for (int b = 0; b < kBlocks; ++b) all = fadd(all, sums[b]);
      total[own] = all;
      top[own] = high;
      MACO_UNROLL
      for (int n = 0; n < kSums; ++n) {
        MACO_UNROLL
        for (int e = 0; e < 4; ++e)
          if (Rows::row_of_sum(e) == own) sum[n][e] = fmul(sum[n][e], shrink);
      }
    }
  }
  // Adds values of which all rows see those from `hidden` up to `seen`; others count as zero.
  // Weights have twice the bits of X.
  MACO_FN void add_values(int block, int group, const char* values, int first, int seen,
                          int hidden) {
    const typename Rows::Weights weights(score[block]);
    // This lane has two keys of each matrix of values.
    u32 keep[2];
    MACO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int key = i * 8 + (warp_lane() & 3) * 2;
      keep[i] = (key < seen ? 0xffffu : 0u) | (key + 1 < seen ? 0xffff0000u : 0u);
      if (S::kEdge)
        keep[i] &= (key >= hidden ? 0xffffu : 0u) | (key + 1 >= hidden ? 0xffff0000u : 0u);
    }
    u32 v[4][4];
    MACO_UNROLL
    for (int n = 4 * group; n < 4 * group + 4 && n < S::kSteps; ++n) {
      u32(&here)[4] = v[n % 4];
      Rows::load_values(here, values, first, n);
      if (seen < kStepChunk || (S::kEdge && hidden > 0)) {
        MACO_UNROLL
        for (int i = 0; i < 4; ++i) here[i] &= keep[Rows::keys_of(i)];
      }
      Rows::add_step(sum, n, weights.high, here);
    }
    MACO_UNROLL
    for (int n = 4 * group; n < 4 * group + 4 && n < S::kSteps; ++n)
      Rows::add_step(sum, n, weights.low, v[n % 4]);
  }
  // The same where rows see different values: a value that a row doesn't see may be anything, and 0
  // * infinity is not 0.
  MACO_FN void add_seen_values(int group, const char* values, int first, const Sight& sight) {
    constexpr int kOfGroup = kSums * kBlockK / (16 * S::kSteps);
    const int seen[kOwn] = {sight.of(Rows::row(0) / (int)C::HB),
                            sight.of(Rows::row(1) / (int)C::HB)};
    const int from[kOwn] = {sight.from(Rows::row(0) / (int)C::HB),
                            sight.from(Rows::row(1) / (int)C::HB)};
    MACO_ROLLED
    for (int i = 0; i < sight.most; ++i) {
      float weight[kOwn];
      MACO_UNROLL
      for (int own = 0; own < kOwn; ++own)
        weight[own] = shuffle(Rows::score_of(score[0], i, own), Rows::lane_of(i));
      MACO_UNROLL
      for (int n = kOfGroup * group; n < kOfGroup * group + kOfGroup && n < kSums; ++n) {
        MACO_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int own = Rows::row_of_sum(e), d = Rows::element(n, e) - group * kBlockK;
          const X v = ((const X*)(values + swizzled(first + i, d / kChunk)))[d % kChunk];
          if (i < seen[own] && (!S::kEdge || i >= from[own]))
            sum[n][e] = ffma(weight[own], to_acc(v), sum[n][e]);
        }
      }
    }
  }
  // Passes on the CTA's results: calls f(row, element of the head, sum relative to the top, top,
  // total) once for each. Until the first barrier inside, the first kUsed bytes of the scratch
  // memory may be in use.
  template <int kUsed, class F>
  MACO_FN void merge(char* scratch, F f) {
    constexpr int kKept = Rows::kKept, kHeads = 2 * 4 * kWarps * kKept;  // bytes of tops and totals
    constexpr int kOfElement = 4 * kWarps * kKept, kAll = 16 * S::kSteps;
    // Behind the used bytes, if all elements fit there at once.
    constexpr bool kBehind = kUsed + kHeads + kAll * kOfElement <= kScratchBytes;
    constexpr int kMost = (int)round_down((kScratchBytes - kHeads) / kOfElement, 16);
    constexpr int kPasses = (kAll + kMost - 1) / kMost;
    constexpr int kWide = (int)round_up((kAll + kPasses - 1) / kPasses, 16);
    float* const tops = (float*)(scratch + (kBehind ? kUsed : 0));
    float* const totals = tops + kWarps * kKept;
    float* const parts = totals + kWarps * kKept;
    if constexpr (!kBehind) cta_sync();
    MACO_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      const float all = Rows::share(total[own], [](float x, float y) { return fadd(x, y); });
      if (Rows::leads() && Rows::row(own) < kKept) {
        tops[warp() * kKept + Rows::row(own)] = top[own];
        totals[warp() * kKept + Rows::row(own)] = all;
      }
    }
    MACO_UNROLL
    for (int from = 0; from < kAll; from += kWide) {
      if (from > 0) cta_sync();
      MACO_UNROLL
      for (int n = 0; n < kSums; ++n) {
        MACO_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int r = Rows::row(Rows::row_of_sum(e)), d = Rows::element(n, e) - from;
          if (kAll * n < kSums * (from + kWide) && kAll * n >= kSums * from && r < kKept)
            parts[(warp() * kKept + r) * kWide + d] = sum[n][e];
        }
      }
      cta_sync();
      for (int i = consumer_thread(); i < S::kRows * kWide; i += kConsumers) {
        const int r = i / kWide, d = from + i % kWide;
        if (d >= S::D) continue;
        float high = kLeast, whole = 0, value = 0;
        MACO_UNROLL
        for (int w = 0; w < kWarps; ++w) high = fmax(high, tops[w * kKept + r]);
        MACO_UNROLL
        for (int w = 0; w < kWarps; ++w) {
          const float own = step_weight(fsub(tops[w * kKept + r], high));
          whole = ffma(totals[w * kKept + r], own, whole);
          value = ffma(parts[w * kKept * kWide + i], own, value);
        }
        f(r, d, value, high, whole);
      }
    }
  }
};

// ---- a lane that stands for all ----------------------------------------------

template <class C>
struct LoneStep {
  using S = StepShape<C>;
  using X = typename C::X;
  float q[S::kRows][S::D], top[S::kRows], total[S::kRows] = {}, sum[S::kRows][S::D] = {};
  float score[kStepRound][S::kRows][S::kKeys > kStepChunk ? S::kKeys : kStepChunk];

  static MACO_FN int chunk() { return 0; }
  static MACO_FN float at(const char* lines, int line, int d) {
    return to_acc(((const X*)(lines + swizzled(line, d / kChunk)))[d % kChunk]);
  }
  static MACO_FN int wide(int group) { return (int)least(kBlockK, S::D - group * kBlockK); }
  MACO_FN void load_queries(int group, const char* lines) {
    for (int r = 0; r < S::kRows; ++r) {
      top[r] = kLeast;
      for (int d = 0; d < wide(group); ++d) q[r][group * kBlockK + d] = at(lines, r, d);
    }
  }
  MACO_FN void score_keys(int block, int group, const char* keys, int, int count) {
    for (int j = 0; j < count; ++j) {
      float key[kBlockK];
      for (int d = 0; d < wide(group); ++d) key[d] = at(keys, j, d);
      for (int r = 0; r < S::kRows; ++r) {
        float part[8] = {};
        for (int d = 0; d < wide(group); ++d)
          part[d % 8] = ffma(q[r][group * kBlockK + d], key[d], part[d % 8]);
        float& s = score[block][r][j];
        if (group == 0) s = 0;
        for (int e = 0; e < 8; ++e) s = fadd(s, part[e]);
      }
    }
  }
  template <int kBlocks, class Seen, class Hidden>
  MACO_FN void weigh_keys(Seen seen, Hidden hidden) {
    for (int r = 0; r < S::kRows; ++r) {
      const int t = r / (int)C::HB;
      const auto from = [&](int b) { return S::kEdge && b == 0 ? hidden(t) : 0; };
      float high = top[r];
      for (int b = 0; b < kBlocks; ++b)
        for (int j = from(b); j < seen(b, t); ++j) {
          score[b][r][j] = near_score_of_product<C, false>(score[b][r][j]);
          high = fn::maximum(high, score[b][r][j]);
        }
      const float shrink = step_weight(fsub(top[r], high));
      float all = 0;
      for (int b = 0; b < kBlocks; ++b)
        for (int j = from(b); j < seen(b, t); ++j) {
          score[b][r][j] = step_weight(fsub(score[b][r][j], high));
          all = fadd(all, score[b][r][j]);
        }
      total[r] = fadd(fmul(total[r], shrink), all);
      top[r] = high;
      for (int d = 0; d < S::D; ++d) sum[r][d] = fmul(sum[r][d], shrink);
    }
  }
  MACO_FN void add_values(int block, int group, const char* values, int, int seen, int hidden) {
    add_some_values(block, group, values, seen, [=](int j, int) { return j >= hidden; });
  }
  MACO_FN void add_seen_values(int group, const char* values, int, const Sight& sight) {
    add_some_values(0, group, values, sight.most, [=](int j, int t) {
      return j < sight.of(t) && (!S::kEdge || j >= sight.from(t));
    });
  }
  template <class Seen>
  MACO_FN void add_some_values(int block, int group, const char* values, int most, Seen seen) {
    for (int j = 0; j < most; ++j) {
      float value[kBlockK];
      for (int d = 0; d < wide(group); ++d) value[d] = at(values, j, d);
      for (int r = 0; r < S::kRows; ++r)
        if (seen(j, r / (int)C::HB))
          for (int d = 0; d < wide(group); ++d) {
            float& to = sum[r][group * kBlockK + d];
            to = ffma(score[block][r][j], value[d], to);
          }
    }
  }
  template <int kUsed, class F>
  MACO_FN void merge(char*, F f) {
    for (int r = 0; r < S::kRows; ++r)
      for (int d = 0; d < S::D; ++d) f(r, d, sum[r][d], top[r], total[r]);
  }
};

// ---- a task ------------------------------------------------------------------

// The rows, heads and keys of a task.
template <class C>
struct StepTile {
  static constexpr i64 kBlocks = C::HQ / C::HB;  // of heads
  i64 split, head, kv_head, first, rows, all, old;
  MACO_FN StepTile(Context& ctx, u32 tile) {
    split = tile % C::splits;
    head = (i64)(tile / C::splits) % kBlocks * C::HB;
    kv_head = head / (C::HQ / C::HKV);
    first = (i64)(tile / C::splits) / kBlocks * C::BT;
    all = C::rows::get(ctx);
    rows = least(C::BT, all - first);
    old = C::length::get(ctx) - all;
  }
  // The first old key that a row sees.
  MACO_FN i64 begin() const { return first_seen<C>(old + 1); }
  // Those old keys from there on that some rows see, but not all.
  MACO_FN Sight edge() const {
    const i64 missing = maco::most(C::window - 1 - old, 0);  // keys that the window has room for
    const int some = (int)least(maco::most(all - 1 - missing, 0), old - begin());
    return {some, some, 0, some, (int)(first - missing)};
  }
};

template <class C>
MACO_OP void attention_step_load(Context& ctx, Args args, u32 tile) {
  const StepTile<C> t(ctx, tile);
  if (t.rows <= 0) return;
  constexpr int kKeys = StepShape<C>::kKeys;
  // As for a matmul's norm: the weights are few, but far away.
  const auto fetch = [&](int operand, i64 bytes) {
    const char* weights = args.ptr<const char>(operand);
    for (i64 i = loader_thread() * kLineBytes; i < bytes; i += kLoaders * kLineBytes)
      prefetch(weights + i);
  };
  constexpr int kNorms = StepShape<C>::kNorms;
  constexpr i64 kNormBytes = C::D * (i64)sizeof(typename C::N);
  if constexpr (C::q_normed) fetch(kNorms, kNormBytes);
  if constexpr (C::k_normed) fetch(kNorms + (C::q_normed ? 1 : 0), kNormBytes);
  if constexpr (C::by_radians) fetch(8, C::R / 2 * (i64)sizeof(float));
  if constexpr (C::tabled) {
    constexpr i64 kRowBytes = C::table_cols * (i64)sizeof(typename C::T);
    for (int table = 8; table < 10; ++table) {
      const char* first =
          args.ptr<const char>(table) + (C::position::get(ctx) + t.first) * kRowBytes;
      for (i64 i = loader_thread() * kLineBytes; i < t.rows * kRowBytes; i += kLoaders * kLineBytes)
        prefetch(first + i);
    }
  }
  head_load<C, 3, kKeys, kStepRound>(ctx, args, t.kv_head, t.begin() + t.split * kKeys,
                                     C::splits * kKeys, t.old);
}

// Operands, in order:
// - q, k and v [rows, q_cols ...]; this attention's heads begin at columns q_begin, k_begin and
//   v_begin. With `stored`, k and v are the caches, which have the new rows already.
// - the caches [.., HKV*D]
// - y [rows,HQ*D] or, with several splits, the operand of attention_merge
// - the new rows of keys and values to append, [rows,HKV*D]
// - with `tabled` cosines and sines as for rope_tables; with `by_radians` the frequencies as for
//   rope_frequencies
// - the weights of the norms of q and of k, if they have one.
// C: X (of all but y, norms and rope's operands), Y, T (of the tables), N (of the norms), rows,
// length (keys, including new ones), position (of the first new row), HQ, HKV, D, R (rotated
// elements of a head), HB (heads of a task), BT (its rows), splits, q_cols, k_cols, v_cols,
// q_begin, k_begin, v_begin, causal, stored, turned, tabled, by_radians, interleaved, q_normed,
// k_normed, q_eps, k_eps, table_cols as for rope_tables, factor and turns(i) as for rope, and the
// parameters of attention_scores.
template <class C>
struct AttentionStep {
  using S = StepShape<C>;
  using X = typename C::X;
  using Y = typename C::Y;
  using N = typename C::N;
  using Keys = typename Either<(kWarpLanes == 1), LoneStep<C>, WarpStep<C>>::type;
  // Elements in pairs. The first kTurned pairs are rotated; the others are pairs of adjacent
  // elements.
  static constexpr int kPairs = S::D / 2, kTurned = (int)C::R / 2;
  static constexpr int kShare = (kPairs + kWarpLanes - 1) / kWarpLanes;

  Context& ctx;
  const Args& args;
  const StepTile<C> t;
  char* const queries;
  char* const new_keys;
  char* const new_values;

  MACO_FN AttentionStep(Context& context, const Args& arguments, u32 tile)
      : ctx(context),
        args(arguments),
        t(context, tile),
        queries(context.scratch()),
        new_keys(queries + S::kAreaBytes),
        new_values(new_keys + S::kAreaBytes) {}

  // A group of the new rows.
  static MACO_FN char* lines_of(char* area, int group) {
    return area + group * (kStepRows * kLineBytes);
  }
  static MACO_FN void put(char* area, int line, i64 d, X value) {
    char* chunk = lines_of(area, (int)(d / kBlockK)) + swizzled(line, (int)(d % kBlockK / kChunk));
    ((X*)chunk)[d % kChunk] = value;
  }

  // A lane's pairs of a head's elements.
  template <class T>
  static MACO_FN void load_pairs(const T* from, float (&a)[kShare], float (&b)[kShare]) {
    MACO_UNROLL
    for (int j = 0; j < kShare; ++j) {
      const int pair = warp_lane() + j * kWarpLanes;
      a[j] = b[j] = 0;
      if (pair < kPairs) {
        a[j] = to_acc(gload(from + first_of(pair)));
        b[j] = to_acc(gload(from + second_of(pair)));
      }
    }
  }
  static MACO_FN void load_pairs(Received<X> from, float (&a)[kShare], float (&b)[kShare]) {
    PacketRun<X, 1> runs[2 * kShare];  // the first of a pair, the second
    receive_together(*from.ctx, from.operand, runs, [&](int i) {
      const int pair = (int)least(warp_lane() + i / 2 * kWarpLanes, kPairs - 1);
      return from + (i % 2 == 0 ? first_of(pair) : second_of(pair));
    });
    MACO_UNROLL
    for (int j = 0; j < kShare; ++j) {
      const bool there = warp_lane() + j * kWarpLanes < kPairs;
      a[j] = there ? to_acc(runs[2 * j].get(0)) : 0.0f;
      b[j] = there ? to_acc(runs[2 * j + 1].get(0)) : 0.0f;
    }
  }
  // A head of a row of queries, keys or values: where it is, and what is done with it.
  struct Row {
    int operand;
    i64 offset;
    bool turns;        // normed, if it has weights, and rotated
    const N* weights;  // of the norm, or nullptr
    float eps;
    i64 position;
    char* area;
    int line;
    X* also;  // a second destination, or nullptr
  };
  static constexpr int kAngles = C::tabled ? TableRow<C>::kOf : 1;
  static MACO_FN bool in_line(int pair) {
    return C::interleaved || (kTurned < kPairs && pair >= kTurned);
  }
  static MACO_FN int first_of(int pair) { return in_line(pair) ? 2 * pair : pair; }
  static MACO_FN int second_of(int pair) { return in_line(pair) ? 2 * pair + 1 : pair + kTurned; }
  MACO_FN void load_row(const Row& row, float (&a)[kShare], float (&b)[kShare]) {
    if constexpr (C::q_packets == C::k_packets && C::k_packets == C::v_packets) {
      load_pairs(to_read<X, C::q_packets>(args, row.operand) + row.offset, a, b);
    } else {
      if (row.operand == 0) load_pairs(to_read<X, C::q_packets>(args, 0) + row.offset, a, b);
      if (row.operand == 1) load_pairs(to_read<X, C::k_packets>(args, 1) + row.offset, a, b);
      if (row.operand == 2) load_pairs(to_read<X, C::v_packets>(args, 2) + row.offset, a, b);
    }
  }
  // One warp norms the row, rotates it, puts it into a line, and stores it. All rows share this
  // code: it runs once in a task, and fetching code takes most of its time.
  MACO_FN void prepare(const Row& row) {
    // What doesn't depend on the row comes before the wait for it. The angles are those of a pair's
    // first element and, if it has its own, of the second.
    float sines[kAngles][kShare] = {}, cosines[kAngles][kShare] = {};
    if constexpr (C::turned) {
      MACO_UNROLL
      for (int j = 0; j < kShare; ++j) {
        const int pair = warp_lane() + j * kWarpLanes;
        if (row.turns && pair < kTurned) {
          if constexpr (C::tabled) {
            MACO_UNROLL
            for (int e = 0; e < kAngles; ++e) {
              cosines[e][j] = TableRow<C>::load(args, 8, row.position, pair, e);
              sines[e][j] = TableRow<C>::load(args, 9, row.position, pair, e);
            }
          } else {
            if constexpr (C::by_radians) {
              const float frequency = gload(args.ptr<const float>(8) + pair);
              sines_at(row.position, frequency, sines[0][j], cosines[0][j]);
            } else {
              sines_of((u64)row.position * C::turns(pair), sines[0][j], cosines[0][j]);
            }
            sines[0][j] = by_factor<C>(sines[0][j]), cosines[0][j] = by_factor<C>(cosines[0][j]);
          }
        }
      }
    }
    [[maybe_unused]] float norm_a[kShare], norm_b[kShare];
    if constexpr (C::q_normed || C::k_normed) {
      if (row.weights) load_pairs(row.weights, norm_a, norm_b);
    }
    float a[kShare], b[kShare];
    load_row(row, a, b);
    if constexpr (C::q_normed || C::k_normed) {
      if (row.weights) {
        float squares = 0;
        MACO_UNROLL
        for (int j = 0; j < kShare; ++j) squares = ffma(a[j], a[j], ffma(b[j], b[j], squares));
        const float scale = norm_scale<S::D>(warp_sum(squares), row.eps);
        MACO_UNROLL
        for (int j = 0; j < kShare; ++j) {
          a[j] = round_to<X>(fmul(fmul(a[j], scale), norm_a[j]));
          b[j] = round_to<X>(fmul(fmul(b[j], scale), norm_b[j]));
        }
      }
    }
    MACO_UNROLL
    for (int j = 0; j < kShare; ++j) {
      const int pair = warp_lane() + j * kWarpLanes;
      if (pair < kPairs) {
        float x = a[j], y = b[j];
        if constexpr (C::turned) {
          if (row.turns && (kTurned == kPairs || pair < kTurned)) {
            x = fsub(fmul(a[j], cosines[0][j]), fmul(b[j], sines[0][j]));
            y = fadd(fmul(b[j], cosines[kAngles - 1][j]), fmul(a[j], sines[kAngles - 1][j]));
          }
        }
        put(row.area, row.line, first_of(pair), from_acc<X>(x));
        put(row.area, row.line, second_of(pair), from_acc<X>(y));
        if (row.also) {
          gstore(row.also + first_of(pair), from_acc<X>(x));
          gstore(row.also + second_of(pair), from_acc<X>(y));
        }
      }
    }
    if constexpr (S::D % 16 != 0) {  // the other half of a step
      if (warp_lane() == 0)
        for (int d = S::D; d < 16 * S::kSteps; ++d) put(row.area, row.line, d, from_acc<X>(0.0f));
    }
  }
  // Prepares the task's queries and, with the first split, the new keys and values: each warp one
  // row.
  MACO_FN void prepare_rows() {
    const i64 position = C::position::get(ctx);
    const int fresh = t.split == 0 ? (int)t.all : 0;
    // One task appends them to the cache.
    const bool appends = t.first == 0 && t.head % (C::HQ / C::HKV) == 0;
    const i64 behind = C::stored ? t.old : 0;
    const N* norms[2] = {};
    if constexpr (C::q_normed) norms[0] = args.ptr<const N>(S::kNorms);
    if constexpr (C::k_normed) norms[1] = args.ptr<const N>(S::kNorms + (C::q_normed ? 1 : 0));
    for (int i = warp(); i < S::kRows + 2 * fresh; i += kWarps) {
      Row what;
      if (i < S::kRows) {
        const i64 row = t.first + i / C::HB, head = t.head + i % C::HB;
        if (row >= t.all) continue;
        what = {0,
                row * C::q_cols + C::q_begin + head * C::D,
                true,
                norms[0],
                (float)C::q_eps,
                position + row,
                queries,
                i,
                nullptr};
      } else {
        const bool key = i < S::kRows + fresh;
        const int row = i - S::kRows - (key ? 0 : fresh);
        const i64 head = t.kv_head * C::D;
        X* to = args.ptr<X>(key ? 6 : 7) + row * S::kCols + head;
        what = {key ? 1 : 2,
                head + (key ? (behind + row) * C::k_cols + C::k_begin
                            : (behind + row) * C::v_cols + C::v_begin),
                key,
                key ? norms[1] : nullptr,
                (float)C::k_eps,
                position + row,
                key ? new_keys : new_values,
                row,
                appends ? to : nullptr};
      }
      prepare(what);
    }
  }

  // Calls f(block, group, page) for the keys, or the values, of at most kBlocks blocks. C::pages
  // pages are awaited, and released, together.
  template <int kBlocks, class F>
  static MACO_FN void each_page(PageTaker& pages, int blocks, const F& f) {
    constexpr int kAll = kBlocks * S::kGroups;
    MACO_UNROLL
    for (int first = 0; first < kAll; first += C::pages) {
      const int here = (int)least(most(blocks * S::kGroups - first, 0), C::pages);
      pages.await_some(here);
      MACO_UNROLL
      for (int i = first; i < first + C::pages && i < kAll; ++i)
        if (i / S::kGroups < blocks) f(i / S::kGroups, i % S::kGroups, pages.take_awaited());
      pages.release_together(here);
    }
  }
  // Blocks of which all rows see seen(block) keys here, except for the keys of `edge`, with which
  // the first block begins.
  template <int kBlocks, class Seen>
  static MACO_FN void round_of_keys(Keys& found, PageTaker& pages, int blocks, const Seen& seen,
                                    const Sight& edge) {
    each_page<kBlocks>(pages, blocks, [&](int b, int g, const char* keys) {
      found.score_keys(b, g, keys, Keys::chunk(), seen(b));
    });
    found.template weigh_keys<kBlocks>([&](int b, int) { return seen(b); },
                                       [&](int row) { return edge.from(row); });
    each_page<kBlocks>(pages, blocks, [&](int b, int g, const char* values) {
      const int hidden = S::kEdge && b == 0 ? edge.most : 0;
      if (seen(b) > 0) found.add_values(b, g, values, Keys::chunk(), seen(b), hidden);
      if (hidden > 0) found.add_seen_values(g, values, Keys::chunk(), edge);
    });
  }
  MACO_FN void old_keys(Keys& found) {
    PageTaker pages(ctx);
    constexpr i64 kStride = C::splits * S::kKeys;
    Sight edge = {0, 0, 0, 0, -kStepRows};
    if (S::kEdge && t.split == 0 && warp() == 0) edge = t.edge();
    for (i64 begin = t.begin() + t.split * S::kKeys; begin < t.old; begin += kStepRound * kStride) {
      const int blocks = (int)least(kStepRound, (t.old - begin + kStride - 1) / kStride);
      const auto seen = [&](int b) {
        const int left = (int)least(S::kKeys, t.old - begin - b * kStride) - Keys::chunk();
        return kWarpLanes == 1 ? left : (int)least(left, kStepChunk);
      };
      // A single block has code of its own: the code for four would be fetched even where it is
      // skipped.
      if (kWarpLanes > 1 && blocks == 1)
        round_of_keys<1>(found, pages, blocks, seen, edge);
      else
        round_of_keys<kStepRound>(found, pages, blocks, seen, edge);
      edge = {0, 0, 0, 0, -kStepRows};
    }
    pages.finish();
  }
  MACO_FN void keys_of_new_rows(Keys& found) {
    const int all = (int)t.all;
    const Sight sight = {all, C::causal ? (int)t.first + 1 : all, C::causal ? 1 : 0, all,
                         S::kEdge ? (int)(t.first + 1 - C::window) : 0};
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) found.score_keys(0, g, lines_of(new_keys, g), 0, all);
    found.template weigh_keys<1>([&](int, int row) { return sight.of(row); },
                                 [&](int row) { return sight.from(row); });
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g)
      found.add_seen_values(g, lines_of(new_values, g), 0, sight);
  }

  MACO_FN void run() {
    if (t.rows <= 0) return;
    prepare_rows();
    cta_sync();
    Keys found;
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) found.load_queries(g, lines_of(queries, g));
    old_keys(found);
    if (t.split == 0 && warp() == 0) keys_of_new_rows(found);
    found.template merge<3 * S::kAreaBytes>(
        ctx.scratch(), [&](int r, int d, float value, float top, float total) {
          const i64 row = t.first + r / C::HB, head = t.head + r % C::HB;
          if (row >= t.all) return;
          if constexpr (C::splits == 1) {
            gstore(to_write<Y, C::y_packets>(args, 5) + row * C::HQ * C::D + head * C::D + d,
                   from_acc<Y>(fdiv(value, total)));
          } else {
            const auto part = to_write<float, C::y_packets>(args, 5) +
                              ((row * C::splits + t.split) * C::HQ + head) * (C::D + 2);
            gstore(part + d, value);
            if (d == 0) {
              gstore(part + C::D, top);
              gstore(part + C::D + 1, total);
            }
          }
        });
  }
};

template <class C>
MACO_OP void attention_step(Context& ctx, Args args, u32 tile) {
  AttentionStep<C>(ctx, args, tile).run();
}

// The splits' results as a warp takes them: for one element of a head (a lane's) all values, and
// the largest scores and totals of every kWidth-th split, so that kWidth lanes together have all.
template <int kSplits, int kTotals>
struct FoundParts {
  static constexpr int kWidth = (int)least(power_above(kSplits), kWarpLanes);
  static constexpr int kOwn = (kSplits + kWidth - 1) / kWidth;
  float value[kSplits], top[kOwn], total[kOwn];
  static MACO_FN int own(int j) {
    return (int)least(warp_lane() % kWidth + j * kWidth, kSplits - 1);
  }
  // from(split): where the split's part of the head is. All loads are issued before the first
  // returns.
  template <class F>
  MACO_FN void load(Context&, const float*, F from, i64 d) {
    MACO_UNROLL
    for (int s = 0; s < kSplits; ++s) value[s] = gload(from(s) + d);
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      top[j] = gload(from(own(j)) + kTotals);
      total[j] = gload(from(own(j)) + kTotals + 1);
    }
  }
  template <class F>
  MACO_FN void load(Context& ctx, Received<float> parts, F from, i64 d) {
    PacketRun<float, 1> runs[kSplits + 2 * kOwn];
    receive_together(ctx, parts.operand, runs, [&](int i) {
      if (i < kSplits) return from(i) + d;
      const int j = i - kSplits;
      return from(own(j / 2)) + (kTotals + j % 2);
    });
    MACO_UNROLL
    for (int s = 0; s < kSplits; ++s) value[s] = runs[s].get(0);
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      top[j] = runs[kSplits + 2 * j].get(0);
      total[j] = runs[kSplits + 2 * j + 1].get(0);
    }
  }
  // The quotient of the sums of weighted values and of weights, added in the order of splits.
  MACO_FN float merged() {
    float high = kLeast, sum = 0, whole = 0;
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) high = fmax(high, top[j]);
    high = warp_top(high);
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      top[j] = step_weight(fsub(top[j], high));
      total[j] = fmul(total[j], top[j]);
    }
    MACO_UNROLL
    for (int s = 0; s < kSplits; ++s) {
      const int j = s / kWidth, lane = s % kWidth;
      sum = fadd(sum, fmul(value[s], shuffle(top[j], lane)));
      whole = fadd(whole, shuffle(total[j], lane));
    }
    return fdiv(sum, whole);
  }
};

// Merges splits: HB heads of a row. Operands parts [rows, splits, HQ, D + 2]: sums of weighted
// values, the largest score, the sum of weights; y [rows,HQ*D]. C: Y, rows, HQ, HB, D, splits.
template <class C>
MACO_OP void attention_merge(Context& ctx, Args args, u32 tile) {
  using Y = typename C::Y;
  constexpr i64 kTasks = C::HQ / C::HB, kPart = C::D + 2;             // of a row
  constexpr int kRuns = (int)((C::D + kWarpLanes - 1) / kWarpLanes);  // of a head, for a warp each
  const i64 row = tile / kTasks, first = tile % kTasks * C::HB;
  if (row >= C::rows::get(ctx)) return;
  const auto parts =
      to_read<float, C::parts_packets>(args, 0) + (row * C::splits * C::HQ + first) * kPart;
  const auto y = to_write<Y, C::y_packets>(args, 1) + (row * C::HQ + first) * C::D;
  for (int run = warp(); run < C::HB * kRuns; run += kWarps) {
    const i64 head = run / kRuns, d = run % kRuns * kWarpLanes + warp_lane();
    FoundParts<(int)C::splits, (int)C::D> found;
    found.load(
        ctx, parts, [&](int s) { return parts + head * kPart + s * (C::HQ * kPart); },
        least(d, C::D - 1));
    const float result = found.merged();
    if (d < C::D) gstore(y + head * C::D + d, from_acc<Y>(result));
  }
}

}  // namespace maco::ops
