// attention: softmax(q k^T * scale) v for BQ query rows of one head, with an online softmax in f32.
//
// The warps take blocks of 32 keys in turn, whatever the length and the tile's rows are, and merge
// their results at the end: a row has the same bits in every tile. Within a block a lane has one
// key for the scores, and some columns for the sum over values.
//
// With a window the warps begin with the first block of which some row sees a key.

namespace maco::ops {

constexpr int kKeys = 32;  // keys of a block

// Operands q [rows,q_cols], of which HQ*D columns from q_begin on count, k and v [.., HKV*D], y
// [rows,HQ*D]. C: Q, K, V, Y, rows, length, q_cols, q_begin, HQ, HKV, D, BQ, causal, and what
// attention_scores takes.
template <class C>
struct Attention {
  using Q = typename C::Q;
  using K = typename C::K;
  using V = typename C::V;
  using Y = typename C::Y;
  static constexpr int BQ = (int)C::BQ;
  static constexpr i64 D = C::D, kPitch = C::HKV * D;
  static constexpr int kKeyVec = vector_width(D, sizeof(K));
  static constexpr int kKeysALane = kKeys / kWarpLanes;
  static constexpr int kParts = kWarpLanes == 1 ? 8 : 1;
  static constexpr int kBatch = kWarpLanes == 1 ? 1 : 8;  // loads in flight in a lane
  // Columns go to lanes in units of kUnit.
  static constexpr int kUnit = vector_width(D % kWarpLanes == 0 ? D / kWarpLanes : 1, sizeof(V),
                                            kWarpLanes == 1 ? 16 : 4 * sizeof(V));
  static constexpr int kUnits = (int)((D / kUnit + kWarpLanes - 1) / kWarpLanes);
  static_assert((BQ * D + kWarps * BQ * kKeys) * 4 <= kScratchBytes,
                "queries and scores fit in the scratch memory");
  static_assert((2 * kWarps * BQ + kWarps * kWarpLanes * kUnit) * 4 <= kScratchBytes,
                "partial results fit in the scratch memory");

  Context& ctx;
  const Args& args;
  i64 head, first, length, sees;
  int rows;
  const K* keys;
  const V* values;
  float* q;        // the queries
  float* weights;  // of the block's keys, by row
  // The lane's results so far for each row: the largest score, the sum of weights relative to it,
  // and the sum of weighted values.
  float top[BQ], total[BQ], sum[BQ][kUnits][kUnit];

  MACO_FN Attention(Context& context, const Args& arguments, u32 tile)
      : ctx(context), args(arguments) {
    head = tile % C::HQ;
    first = (i64)(tile / C::HQ) * BQ;
    const i64 all = C::rows::get(ctx);
    length = C::length::get(ctx);
    rows = (int)least(BQ, all - first);
    const i64 kv_head = head / (C::HQ / C::HKV);
    keys = args.ptr<const K>(1) + kv_head * D;
    values = args.ptr<const V>(2) + kv_head * D;
    // Row i of the tile sees keys up to sees + i if causal, else all keys.
    sees = C::causal ? length - all + first + 1 : length;
    q = (float*)ctx.scratch();
    weights = q + BQ * D + warp() * BQ * kKeys;
  }
  MACO_FN i64 limit(int i) const { return C::causal ? sees + i : length; }
  MACO_FN i64 from(int i) const { return first_seen<C>(limit(i)); }

  MACO_FN void stage_queries() {
    for (i64 i = consumer_thread(); i < BQ * D; i += kConsumers) {
      const i64 r = i / D, d = i % D;
      q[i] = r < rows ? to_acc(gload(args.ptr<const Q>(0) + (first + r) * C::q_cols + C::q_begin +
                                     head * D + d))
                      : 0.0f;
    }
  }
  MACO_FN void clear() {
    MACO_UNROLL
    for (int r = 0; r < BQ; ++r) {
      top[r] = kLeast;
      total[r] = 0;
      MACO_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        MACO_UNROLL
        for (int e = 0; e < kUnit; ++e) sum[r][u][e] = 0;
      }
    }
  }

  // The scores of this lane's keys among the `count` from `begin` on.
  MACO_FN void score_keys(i64 begin, int count, float (&score)[kKeysALane][BQ]) const {
    MACO_UNROLL
    for (int t = 0; t < kKeysALane; ++t) {
      const int j = warp_lane() + t * kWarpLanes;
      float part[BQ][kParts] = {};
      if (j < count) {
        const K* key = keys + (begin + j) * kPitch;
        for (i64 d = 0; d < D; d += kKeyVec * kBatch) {
          Vec<K, kKeyVec> k[kBatch];
          MACO_UNROLL
          for (int b = 0; b < kBatch; ++b)
            if (d + b * kKeyVec < D) k[b] = gload_vec<kKeyVec>(key + d + b * kKeyVec);
          MACO_UNROLL
          for (int b = 0; b < kBatch; ++b) {
            if (d + b * kKeyVec < D) {
              MACO_UNROLL
              for (int r = 0; r < BQ; ++r) {
                MACO_UNROLL
                for (int e = 0; e < kKeyVec; ++e)
                  part[r][e % kParts] =
                      ffma(q[r * D + d + b * kKeyVec + e], to_acc(k[b].v[e]), part[r][e % kParts]);
              }
            }
          }
        }
      }
      MACO_UNROLL
      for (int r = 0; r < BQ; ++r) {
        float dot = part[r][0];
        for (int e = 1; e < kParts; ++e) dot = fadd(dot, part[r][e]);
        score[t][r] = score_of_product<C>(dot);
      }
    }
  }

  // Turns scores into weights, relative to the largest score so far, and scales down the sums so
  // far accordingly.
  MACO_FN void weigh_keys(i64 begin, int count, const float (&score)[kKeysALane][BQ]) {
    MACO_UNROLL
    for (int r = 0; r < BQ; ++r) {
      // Keys [hidden, visible): the same for the whole warp.
      const int visible = (int)least(count, limit(r) - begin);
      const int hidden = (int)most(from(r) - begin, 0);
      const auto is_seen = [&](int j) { return j < visible && (C::window == 0 || j >= hidden); };
      if (visible > (C::window == 0 ? 0 : hidden)) {
        float high = top[r];
        MACO_UNROLL
        for (int t = 0; t < kKeysALane; ++t)
          if (is_seen(warp_lane() + t * kWarpLanes)) high = ftop(high, score[t][r]);
        high = warp_top(high);
        const float shrink = fexp(fsub(top[r], high));
        float block = 0;
        MACO_UNROLL
        for (int t = 0; t < kKeysALane; ++t) {
          const int j = warp_lane() + t * kWarpLanes;
          const float weight = is_seen(j) ? fexp(fsub(score[t][r], high)) : 0.0f;
          weights[r * kKeys + j] = weight;
          block = fadd(block, weight);
        }
        total[r] = fadd(fmul(total[r], shrink), warp_sum(block));
        top[r] = high;
        MACO_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          MACO_UNROLL
          for (int e = 0; e < kUnit; ++e) sum[r][u][e] = fmul(sum[r][u][e], shrink);
        }
      }
    }
  }

  MACO_FN void add_values(i64 begin, int count) {
    for (int j = 0; j < count; j += kBatch) {
      MACO_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        const i64 d = ((i64)u * kWarpLanes + warp_lane()) * kUnit;
        if (d < D) {
          Vec<V, kUnit> v[kBatch];
          MACO_UNROLL
          for (int b = 0; b < kBatch; ++b)
            if (j + b < count) v[b] = gload_vec<kUnit>(values + (begin + j + b) * kPitch + d);
          MACO_UNROLL
          for (int b = 0; b < kBatch; ++b) {
            MACO_UNROLL
            for (int r = 0; r < BQ; ++r) {
              // A value that the row doesn't see may be anything, and 0 * infinity is not 0.
              if (j + b < count && (!C::causal || begin + j + b < limit(r)) &&
                  (C::window == 0 || begin + j + b >= from(r))) {
                const float weight = weights[r * kKeys + j + b];
                MACO_UNROLL
                for (int e = 0; e < kUnit; ++e)
                  sum[r][u][e] = ffma(weight, to_acc(v[b].v[e]), sum[r][u][e]);
              }
            }
          }
        }
      }
    }
  }

  // Merges the warps' results, each scaled by its maximum relative to the maximum of all, and
  // stores the sum.
  MACO_FN void merge() {
    float* tops = (float*)ctx.scratch();
    float* totals = tops + kWarps * BQ;
    float* parts = totals + kWarps * BQ;
    if (warp_lane() == 0) {
      MACO_UNROLL
      for (int r = 0; r < BQ; ++r) {
        tops[warp() * BQ + r] = top[r];
        totals[warp() * BQ + r] = total[r];
      }
    }
    cta_sync();
    MACO_UNROLL
    for (int r = 0; r < BQ; ++r) {
      if (r < rows) {
        float high = kLeast, whole = 0;
        for (int w = 0; w < kWarps; ++w) high = ftop(high, tops[w * BQ + r]);
        for (int w = 0; w < kWarps; ++w)
          whole = fadd(whole, fmul(totals[w * BQ + r], fexp(fsub(tops[w * BQ + r], high))));
        const float own = fexp(fsub(top[r], high));
        MACO_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          MACO_UNROLL
          for (int e = 0; e < kUnit; ++e)
            parts[(warp() * kWarpLanes + warp_lane()) * kUnit + e] = fmul(sum[r][u][e], own);
          cta_sync();
          for (int i = consumer_thread(); i < kWarpLanes * kUnit; i += kConsumers) {
            const i64 d = (i64)u * kWarpLanes * kUnit + i;
            float value = 0;
            for (int w = 0; w < kWarps; ++w) value = fadd(value, parts[w * kWarpLanes * kUnit + i]);
            if (d < D)
              gstore(args.ptr<Y>(3) + (first + r) * C::HQ * D + head * D + d,
                     from_acc<Y>(limit(r) > 0 ? fdiv(value, whole) : 0.0f));
          }
          cta_sync();
        }
      }
    }
  }

  MACO_FN void run() {
    if (rows <= 0) return;
    stage_queries();
    cta_sync();
    clear();
    const i64 last = limit(rows - 1);
    i64 begin = (i64)warp() * kKeys;
    if constexpr (C::window > 0) {
      const i64 block = from(0) / kKeys;  // the key decides which warp gets the block
      begin = (block + (warp() + kWarps - block % kWarps) % kWarps) * kKeys;
    }
    for (; begin < last; begin += kWarps * kKeys) {
      const int count = (int)least(kKeys, last - begin);
      float score[kKeysALane][BQ];
      score_keys(begin, count, score);
      weigh_keys(begin, count, score);
      warp_sync();
      add_values(begin, count);
      warp_sync();
    }
    cta_sync();
    merge();
  }
};

template <class C>
MACO_OP void attention(Context& ctx, Args args, u32 tile) {
  Attention<C>(ctx, args, tile).run();
}

}  // namespace maco::ops
