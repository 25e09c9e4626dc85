// matmul of few rows without tensor cores, except for a lone row (matmul_row.cuh): threads split K,
// and their sums are added at the end.

namespace maco::ops {

// ---- few rows, b[N,K]: a warp has columns of a page, its lanes split K -------

// What a lane takes of some steps of a page, and of a for these: all of it is loaded before the
// first element is multiplied.
template <class P, int kSteps, int kRows, int kOwn, i64 kStage, class X, class W>
struct FewPage {
  static constexpr int kVec = P::kVec, kStep = kVec * kWarpLanes;
  Vec<X, kVec> xv[kSteps][kRows];
  Vec<W, kVec> wv[kSteps][kOwn];
  MACO_FN void load(const X* x, const W* page) {
    const X* xs = x + warp_lane() * kVec;
    const W* ws = page + warp() * P::kPitch + warp_lane() * kVec;
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      MACO_UNROLL
      for (int r = 0; r < kRows; ++r) xv[s][r] = shared_raw<kVec>(xs + r * kStage + s * kStep);
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j)
        wv[s][j] = shared_raw<kVec>(ws + j * kWarps * P::kPitch + s * kStep);
    }
  }
  template <bool kBf16>
  MACO_FN void multiply(DiagonalSum<kBf16> (&sums)[kOwn]) const {
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j)
        sums[j].add(bits_as<Vec<u32, 4>>(xv[s][0]), bits_as<Vec<u32, 4>>(wv[s][j]));
    }
  }
  template <class A>
  MACO_FN void multiply(A (&acc)[kRows][kOwn][1]) const {
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      A w[kOwn][kVec];
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j) unpack<kVec>(wv[s][j], w[j]);
      MACO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        A a[kVec];
        unpack<kVec>(xv[s][r], a);
        MACO_UNROLL
        for (int v = 0; v < kVec; ++v) {
          MACO_UNROLL
          for (int j = 0; j < kOwn; ++j) acc[r][j][0] = fn::mul_add(a[v], w[j][v], acc[r][j][0]);
        }
      }
    }
  }
};

// A warp's results, rows by columns of a slice: each lane gets one at a time and finishes it.
template <class C, class P, int kRows, int kOwn, int kParts, class A>
struct FewResults {
  static constexpr int kOut = kOwn / P::kParts, kCount = kRows * kOut;
  // If each lane has at most one result, the operands that finish it are loaded while K is
  // processed.
  static constexpr bool kFetches = kWarpLanes > 1 && kCount <= kWarpLanes;
  static MACO_FN int row(int i) { return i / kOut; }
  static MACO_FN int col(int i) { return warp() + i % kOut * kWarps; }
  static MACO_FN typename C::More fetch(const MatmulTile<C>& t, const Args& args, i64 n, i64 cols) {
    const int i = warp_lane();
    if (kFetches && i < kCount && row(i) < t.rows && col(i) < cols)
      return C::fetch(args, t.row + row(i), n + col(i));
    return {};
  }
  static MACO_FN A total(Context& ctx, const A (&parts)[kParts]) {
    A sum = parts[0];
    MACO_UNROLL
    for (int v = 1; v < kParts; ++v) sum = fn::add(sum, parts[v]);
    return team_reduce<WarpTeam>(ctx, sum, [](A p, A q) { return fn::add(p, q); });
  }
  static MACO_FN void store(Context& ctx, const MatmulTile<C>& t, const Args& args, i64 n, i64 cols,
                            const A (&acc)[kRows][kOwn][kParts], const typename C::More& more) {
    MACO_UNROLL
    for (int base = 0; base < kCount; base += kWarpLanes) {
      A mine = 0, other = 0;
      MACO_UNROLL
      for (int i = base; i < base + kWarpLanes && i < kCount; ++i) {
        const A sum = total(ctx, acc[row(i)][i % kOut]);
        if (warp_lane() == i - base) mine = sum;
        if constexpr (C::has_pair) {
          const A second = total(ctx, acc[row(i)][i % kOut + kOut]);
          if (warp_lane() == i - base) other = second;
        }
      }
      const int i = base + warp_lane();
      if (i < kCount && col(i) < cols) {
        if constexpr (kFetches && C::has_pair) {
          matmul_finish(t, args, row(i), n + col(i), more, mine, other);
        } else if constexpr (kFetches) {
          matmul_finish(t, args, row(i), n + col(i), more, mine);
        } else if constexpr (C::has_pair) {
          matmul_store(t, args, row(i), n + col(i), mine, other);
        } else {
          matmul_store(t, args, row(i), n + col(i), mine);
        }
      }
    }
  }
};

template <class C, class P, int kRows>
MACO_FN void matmul_few_transposed(Context& ctx, const Args& args, u32 index) {
  using X = typename C::X;
  using W = typename C::W;
  using A = AccOf<X>;
  constexpr int kVec = P::kVec;
  constexpr int kOwn = (int)((P::kPageCols + kWarps - 1) / kWarps);  // of a warp
  static_assert(!C::has_pair || (kOwn % 2 == 0 && P::kPageCols % kWarps == 0),
                "a warp has both columns of a pair");
  // A lone lane adds a vector at a time.
  constexpr int kParts = kWarpLanes == 1 ? kVec : 1;
  constexpr i64 kRoom = round_down(P::kStageBytes / (kRows * (i64)sizeof(X)), P::kDepth);
  // Pages for tensor cores may be deeper than that. A lone thread, which uses no tensor cores, then
  // keeps rows of its own.
  constexpr bool kOwnStage = kRoom == 0;
  static_assert(!kOwnStage || kConsumers == 1, "the scratch memory has rows of a page");
  constexpr i64 kStage = least(P::kWhole, kOwnStage ? P::kDepth : kRoom);
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  // Whether the warps share a whole page evenly.
  constexpr bool kEven =
      kWarpLanes > 1 && P::kDepth % (kVec * kWarpLanes) == 0 && P::kPageCols % kWarps == 0;
  // Whether column c of the page is in a slice that ends early: the first `cols` columns of each
  // part are.
  const auto is_there = [](int c, i64 cols) {
    return (C::has_pair ? c % (int)P::kCols : c) < cols;
  };
  alignas(16) X own[kOwnStage ? kRows * kStage : 1];
  X* a = kOwnStage ? own : (X*)ctx.scratch();
  constexpr bool kWholeRow = C::Rows::kWholeRow && kRows == 1 && kStage >= C::K;
  // Whether tensor cores multiply a lone row, if they multiply several rows: all whole steps, so
  // that the order of additions doesn't depend on the tile. (Columns that the tile lacks are
  // computed, and not stored.)
  constexpr bool kDiagonal = kEven && kFewOnCores<C> && kRows == 1;
  constexpr bool kLoneRow = kDiagonal && kStage >= C::K && MatmulRow<C, P>::kSuits;
  if constexpr (kLoneRow) {
    MatmulRow<C, P> row(ctx, t, args);
    for (i64 k = C::K + consumer_thread() * kVec; k < row.kRow; k += kConsumers * kVec)
      *(Vec<X, kVec>*)(a + k) = {};
    C::Rows::template stage_lone<kStage, true>(ctx, t, args, a);
    row.take_asked();
    cta_sync();
    row.run(a);
    return;
  }
  if constexpr (kWholeRow)
    C::Rows::template stage_lone<kStage, false>(ctx, t, args, a);
  else
    C::Rows::template begin<kRows == 1>(ctx, t, args);
  typename C::More more = {};
  using Results = FewResults<C, P, kRows, kOwn, kParts, A>;
  constexpr int kStep = kVec * kWarpLanes;
  using Page = FewPage<P, (int)(P::kDepth / kStep), kRows, kOwn, kStage, X, W>;
  using Step = FewPage<P, 1, kRows, kOwn, kStage, X, W>;
  PageTaker pages(ctx);

  for (i64 n = t.col; n < t.end; n += P::kCols) {
    const i64 cols = least(P::kCols, t.end - n);
    A acc[kRows][kOwn][kParts] = {};
    DiagonalSum<is_same<X, bf16>> sums[kOwn];
    more = Results::fetch(t, args, n, cols);
    for (i64 k = 0; k < C::K; k += P::kDepth) {
      if (k % kStage == 0 && (n == t.col || kStage < C::K)) {
        if (k > 0 || n > t.col) cta_sync();
        if constexpr (!kWholeRow)
          matmul_stage<C, kRows, kStage>(ctx, t, args, a, k, least(kStage, C::K - k));
        cta_sync();
      }
      const i64 depth = least(P::kDepth, C::K - k);
      const W* page = (const W*)pages.take();
      const X* x = a + k % kStage;
      if constexpr (kEven) {
        if ((kDiagonal || cols == P::kCols) && depth == P::kDepth) {
          Page whole;
          whole.load(x, page);
          pages.release();
          if constexpr (kDiagonal)
            whole.multiply(sums);
          else
            whole.multiply(acc);
          continue;
        }
      }
      const int full = (int)(depth / kVec), steps = kDiagonal ? (int)(depth / kStep) : 0;
      if constexpr (kDiagonal) {
        for (int s = 0; s < steps; ++s) {
          Step step;
          step.load(x + s * kStep, page + s * kStep);
          step.multiply(sums);
        }
      }
      for (int i = steps * kWarpLanes + warp_lane(); i < full; i += kWarpLanes) {
        A xs[kRows][kVec];
        MACO_UNROLL
        for (int r = 0; r < kRows; ++r) shared_vec<kVec>(x + r * kStage + i * kVec, xs[r]);
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) {
          const int c = warp() + j * kWarps;
          if (is_there(c, cols)) {
            A ws[kVec];
            shared_vec<kVec>(page + c * P::kPitch + i * kVec, ws);
            MACO_UNROLL
            for (int r = 0; r < kRows; ++r) {
              MACO_UNROLL
              for (int v = 0; v < kVec; ++v)
                acc[r][j][v % kParts] = fn::mul_add(xs[r][v], ws[v], acc[r][j][v % kParts]);
            }
          }
        }
      }
      for (int i = full * kVec + warp_lane(); i < depth; i += kWarpLanes) {  // the odd end of K
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) {
          const int c = warp() + j * kWarps;
          if (is_there(c, cols)) {
            MACO_UNROLL
            for (int r = 0; r < kRows; ++r)
              acc[r][j][0] = fn::mul_add(to_acc(x[r * kStage + i]), to_acc(page[c * P::kPitch + i]),
                                         acc[r][j][0]);
          }
        }
      }
      pages.release();
    }
    if constexpr (kDiagonal) {
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j) acc[0][j][0] = fadd(acc[0][j][0], sums[j].own());
    }
    Results::store(ctx, t, args, n, cols, acc, more);
  }
  pages.finish();
}

// ---- few rows, b[K,N]: a thread has a vector of columns, groups split K -----

// Adds up the groups' sums and stores them: columns [n, n + cols) of the tile.
template <class C, class P, int kRows, int kOwn, int kAcross, class A>
MACO_FN void matmul_add_groups(const MatmulTile<C>& t, const Args& args,
                               const A (&acc)[kRows][kOwn][P::kVec], A* sums, i64 n, i64 cols) {
  // Rows that are added up between two barriers.
  constexpr int kAtOnce = (int)least(kRows, most(1, 4096 / (kWarps * P::kPitch * 4)));
  static_assert(kWarps * kAtOnce * P::kPitch * 4 <= 4096, "sums fit behind the staged rows");
  const int across = warp_lane() % kAcross;
  MACO_UNROLL
  for (int first = 0; first < kRows; first += kAtOnce) {
    MACO_UNROLL
    for (int r = first; r < first + kAtOnce && r < kRows; ++r) {
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        MACO_UNROLL
        for (int v = 0; v < P::kVec; ++v) {
          A sum = acc[r][j][v];
          MACO_UNROLL
          for (int mask = kAcross; mask < kWarpLanes; mask *= 2)
            sum = fn::add(sum, shuffle_xor(sum, mask));
          const int c = (j * kAcross + across) * P::kVec + v;
          if (warp_lane() < kAcross && c < P::kPitch)
            sums[(warp() * kAtOnce + r - first) * P::kPitch + c] = sum;
        }
      }
    }
    cta_sync();
    for (int i = consumer_thread(); i < kAtOnce * P::kPitch; i += kConsumers) {
      A sum = sums[i];
      for (int w = 1; w < kWarps; ++w) sum = fn::add(sum, sums[w * kAtOnce * P::kPitch + i]);
      const i64 r = first + i / P::kPitch, c = i % P::kPitch;
      if (r < kRows && c < cols) matmul_store(t, args, r, n + c, sum);
    }
    cta_sync();
  }
}

template <class C, class P, int kRows>
MACO_FN void matmul_few_plain(Context& ctx, const Args& args, u32 index) {
  using X = typename C::X;
  using W = typename C::W;
  using A = AccOf<X>;
  constexpr int kVec = P::kVec;
  constexpr int kVecs = (int)(P::kPitch / kVec);                       // vectors across a page
  constexpr int kAcross = (int)least(power_above(kVecs), kWarpLanes);  // lanes across
  constexpr int kOwn = (kVecs + kAcross - 1) / kAcross;                // vectors of a lane
  constexpr int kGroups = kConsumers / kAcross;
  constexpr i64 kStage =
      least(P::kWhole, round_down(P::kStageBytes / (kRows * (i64)sizeof(X)), P::kDepth));
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  X* a = (X*)ctx.scratch();
  A* sums = (A*)(ctx.scratch() + P::kStageBytes);
  C::Rows::template begin<kRows == 1>(ctx, t, args);
  const int across = warp_lane() % kAcross,
            group = warp() * (kWarpLanes / kAcross) + warp_lane() / kAcross;

  for (i64 n = t.col; n < t.end; n += P::kCols) {
    const i64 cols = least(P::kCols, t.end - n);
    A acc[kRows][kOwn][kVec] = {};
    for (i64 k = 0; k < C::K; k += P::kDepth) {
      if (k % kStage == 0 && (n == t.col || kStage < C::K))
        matmul_stage<C, kRows, kStage>(ctx, t, args, a, k, least(kStage, C::K - k));
      const i64 depth = least(P::kDepth, C::K - k);
      const W* page = (const W*)page_wait(ctx);
      if (!page) return;
      const X* x = a + k % kStage;
      for (int d = group; d < depth; d += kGroups) {
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) {
          const int c = (j * kAcross + across) * kVec;
          A ws[kVec] = {};
          if (c + kVec <= cols) {
            shared_vec<kVec>(page + d * P::kPitch + c, ws);
          } else {
            for (int v = 0; v < kVec; ++v)
              if (c + v < cols) ws[v] = to_acc(page[d * P::kPitch + c + v]);
          }
          MACO_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const A xr = to_acc(x[r * kStage + d]);
            MACO_UNROLL
            for (int v = 0; v < kVec; ++v) acc[r][j][v] = fn::mul_add(xr, ws[v], acc[r][j][v]);
          }
        }
      }
      page_release(ctx);
    }
    matmul_add_groups<C, P, kRows, kOwn, kAcross>(t, args, acc, sums, n, cols);
  }
}

}  // namespace maco::ops
