// matmul of few rows, b[N,K] of 16-bit floats, on tensor cores. Warps split K. Each warp has all
// columns of a pass, so that it reads its part of a once, from memory to registers.
//
// A sum doesn't depend on the order of K, if a and b use the same order. A lane takes 16 bytes of a
// row of a and of a column of b; the first and last 8 bytes stand for elements of K that are apart
// in a fragment. No lane reads what another needs, and nothing is transposed.

namespace maco::ops {

template <class C, class P, int kRows>
struct MatmulFewMma {
  using X = typename C::X;
  static constexpr int kRun = 8;          // elements of a lane
  static constexpr int kUnit = 4 * kRun;  // of a warp: four lanes a row
  static constexpr int kUnits = (int)((P::kDepth + kUnit * kWarps - 1) / (kUnit * kWarps));
  static constexpr int kSlices = (int)((P::kPass + P::kCols - 1) / P::kCols);
  static constexpr int kWide = (int)(P::kPageCols / 8);  // fragments across a slice
  static constexpr int kTall = (kRows + 15) / 16;        // fragments down the rows
  static constexpr int kEights = (kRows + 7) / 8;        // groups of eight rows of a
  static_assert(P::kCols % 8 == 0, "columns come in eights");
  // For a pair, the first half of a slice's fragments is of b, the other half of the other b.
  static constexpr int kOut = kWide / P::kParts;

  const MatmulTile<C>& t;
  const Args& args;
  const int line = warp_lane() / 4;                      // row of a, column of b
  const int at = (warp() * 4 + warp_lane() % 4) * kRun;  // of K, in a unit of all warps
  const i64 first;                                       // column of the pass
  const float* const scales;
  float sums[kSlices * kWide][kTall][4] = {};
  Vec<u32, 4> a[kUnits][kEights], next[kUnits][kEights];

  MACO_FN MatmulFewMma(Context& ctx, const MatmulTile<C>& tile, const Args& arguments, i64 col)
      : t(tile), args(arguments), first(col), scales(ctx.memory()->scales) {}

  MACO_FN Vec<u32, 4> run_of(const Vec<X, kRun>& x, int row, i64 k) const {
    return bits_as<Vec<u32, 4>>(C::Rows::template change<kRun>(args, t, scales, row, k, x));
  }

  // Loads the part of a for the slices from K = k on.
  MACO_FN void fetch(i64 k) {
    const auto from = matmul_rows(t, args);
    const auto row_of = [&](int h) { return line + 8 * h; };
    const auto column_of = [&](int u) { return k + u * kUnit * kWarps + at; };
    const auto is_there = [&](int u, int h) {
      return row_of(h) < t.rows && column_of(u) < C::K && u * kUnit * kWarps + at < P::kDepth;
    };
    const auto place = [&](int u, int h) {
      return from + (is_there(u, h) ? row_of(h) * C::K + column_of(u) : 0);
    };
    if constexpr (C::a_packets) {
      PacketRun<X, kRun> runs[kUnits * kEights];
      receive_together(*from.ctx, 0, runs, [&](int i) { return place(i / kEights, i % kEights); });
      MACO_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        MACO_UNROLL
        for (int h = 0; h < kEights; ++h) {
          next[u][h] = {};
          if (is_there(u, h))
            next[u][h] = run_of(runs[u * kEights + h].values(), row_of(h), column_of(u));
        }
      }
    } else {
      MACO_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        MACO_UNROLL
        for (int h = 0; h < kEights; ++h) {
          next[u][h] = {};
          if (is_there(u, h))
            next[u][h] = run_of(gload_vec<kRun>(place(u, h)), row_of(h), column_of(u));
        }
      }
    }
  }
  MACO_FN void step() {
    MACO_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      MACO_UNROLL
      for (int h = 0; h < kEights; ++h) a[u][h] = next[u][h];
    }
  }
  // Adds the products of a slice that covers `depth` of K. All sums get their first product of a
  // unit before any gets its second, which waits for the first.
  MACO_FN void multiply(int slice, const X* page, i64 depth) {
    constexpr bool kBf16 = is_same<X, bf16>;
    MACO_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      const int here = u * kUnit * kWarps + at;
      Vec<u32, 4> b[kWide] = {};
      MACO_UNROLL
      for (int j = 0; j < kWide; ++j)
        if (here < depth) b[j] = shared_load16(page + (j * 8 + line) * P::kPitch + here);
      MACO_UNROLL
      for (int half = 0; half < 4; half += 2) {
        MACO_UNROLL
        for (int j = 0; j < kWide; ++j) {
          MACO_UNROLL
          for (int r = 0; r < kTall; ++r) {
            const Vec<u32, 4> low = a[u][2 * r];
            const Vec<u32, 4> high = 2 * r + 1 < kEights ? a[u][2 * r + 1] : Vec<u32, 4>{};
            multiply_matrices<kBf16>(sums[slice * kWide + j][r],
                                     {low.v[half], high.v[half], low.v[half + 1], high.v[half + 1]},
                                     b[j].v[half], b[j].v[half + 1]);
          }
        }
      }
    }
  }
  // Adds up the warps' sums in order, and stores them.
  MACO_FN void store(float* scratch) const {
    constexpr int kHigh = 8 * kEights, kAcross = kScratchBytes / (4 * kWarps * kHigh);
    constexpr int kAll = kSlices * kOut;  // fragments across the result
    constexpr int kAtOnce = kAcross / 8 / P::kParts;
    static_assert(kAtOnce > 0, "a fragment of each warp fits");
    MACO_UNROLL
    for (int f = 0; f < kAll; f += kAtOnce) {
      MACO_UNROLL
      for (int g = f; g < f + kAtOnce && g < kAll; ++g) {
        MACO_UNROLL
        for (int p = 0; p < P::kParts; ++p) {
          MACO_UNROLL
          for (int r = 0; r < kEights; ++r) {
            MACO_UNROLL
            for (int e = 0; e < 2; ++e)
              scratch[(warp() * kHigh + r * 8 + line) * kAcross + ((g - f) * P::kParts + p) * 8 +
                      warp_lane() % 4 * 2 + e] =
                  sums[g / kOut * kWide + p * kOut + g % kOut][r / 2][r % 2 * 2 + e];
          }
        }
      }
      cta_sync();
      const i64 col = first + f * 8, end = least(t.end, first + P::kPass);
      for (int i = consumer_thread(); i < kHigh * kAtOnce * 8; i += kConsumers) {
        const int row = i / (kAtOnce * 8), c = i % (kAtOnce * 8);
        if (row < t.rows && col + c < end) {
          const float* from = scratch + row * kAcross + c / 8 * (8 * P::kParts) + c % 8;
          if constexpr (C::has_pair) {
            matmul_store(t, args, row, col + c, added_up(from), added_up(from + 8));
          } else {
            matmul_store(t, args, row, col + c, added_up(from));
          }
        }
      }
      cta_sync();
    }
  }
  static MACO_FN float added_up(const float* from) {
    constexpr int kHigh = 8 * kEights, kAcross = kScratchBytes / (4 * kWarps * kHigh);
    float sum = from[0];
    for (int w = 1; w < kWarps; ++w) sum = fadd(sum, from[w * kHigh * kAcross]);
    return sum;
  }
};

template <class C, class P, int kRows>
MACO_FN void matmul_few_mma(Context& ctx, const Args& args, u32 index) {
  using Few = MatmulFewMma<C, P, kRows>;
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  C::Rows::template begin<false>(ctx, t, args);
  PageTaker pages(ctx);
  for (i64 pass = t.col; pass < t.end; pass += P::kPass) {
    Few few(ctx, t, args, pass);
    few.fetch(0);
    for (i64 k = 0; k < C::K; k += P::kDepth) {
      const i64 depth = least(P::kDepth, C::K - k);
      few.step();
      if (k + P::kDepth < C::K) few.fetch(k + P::kDepth);
      MACO_UNROLL
      for (int slice = 0; slice < Few::kSlices; ++slice) {
        if (pass + slice * P::kCols < t.end) {
          few.multiply(slice, (const typename C::X*)pages.take(), depth);
          pages.release();
        }
      }
    }
    few.store((float*)ctx.scratch());
  }
  pages.finish();
}

}  // namespace maco::ops
