// attention_step_warp.cuh: the rows of a task over the keys that a warp has, as fragments of its
// lanes.

namespace maco::ops {

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

}  // namespace maco::ops
