// matmul of one row, b[N,K] of 16-bit floats, on tensor cores. A warp has columns of a page, its
// lanes split K, and the row's part of a lane stays in registers where it fits.
//
// A page takes a warp a few hundred cycles, one step waiting for the other. So the next page is on
// its way to registers while one is multiplied.

namespace maco::ops {

// A sum of products of one row on tensor cores. Of 512 bytes of a column of b each lane has 16,
// four lanes a run of 64. As fragment a, the even words of the eight runs are the first eight rows,
// the odd ones the others; words of the row of a, as fragment b, are the columns. So the products
// of a run with itself are on the diagonal: of even words in the upper half, of odd ones in the
// lower. The rest is of no use.
template <bool kBf16>
struct DiagonalSum {
  float even[4] = {}, odd[4] = {};
  MACO_FN void add(const Vec<u32, 4>& x, const Vec<u32, 4>& w) {
    add_paired({{x.v[0], x.v[2], x.v[1], x.v[3]}}, w);
  }
  // The same of x in the order of pairs (put_run).
  MACO_FN void add_paired(const Vec<u32, 4>& x, const Vec<u32, 4>& w) {
    multiply_matrices<kBf16>(even, w.v, x.v[0], x.v[1]);
    multiply_matrices<kBf16>(odd, w.v, x.v[2], x.v[3]);
  }
  // What this lane has of the diagonal.
  MACO_FN float own() const {
    const int row = warp_lane() >> 2;
    if (row >> 1 != (warp_lane() & 3)) return 0;
    return row & 1 ? fadd(even[1], odd[3]) : fadd(even[0], odd[2]);
  }
};

template <class C, class P>
struct MatmulRow {
  using X = typename C::X;
  static constexpr int kVec = P::kVec, kStep = kVec * kWarpLanes;
  static constexpr int kSteps = (int)(P::kDepth / kStep);    // of a page
  static constexpr int kPages = (int)(C::K / P::kDepth);     // of a slice
  static constexpr int kOwn = (int)(P::kPageCols / kWarps);  // columns of a warp in a page
  static constexpr int kOut = kOwn / P::kParts;              // and of the result
  // The row in registers. Beside sends a long one would push the slots' addresses into local
  // memory, and loading them back would delay the end.
  static constexpr bool kHeld = kPages * kSteps <= (C::pushed ? 8 : 16);
  // Whether pages and warps are whole, so that this way suits.
  static constexpr bool kSuits =
      kWarpLanes > 1 && P::kDepth % kStep == 0 && C::K % P::kDepth == 0 &&
      P::kPageCols % (kWarps * P::kParts) == 0 && (kOwn == 1 || kOwn % 2 == 0);

  // What a lane has of a page.
  struct Page {
    Vec<u32, 4> x[kHeld ? 1 : kSteps], w[kOwn][kSteps];
    MACO_FN void load(const X* row, const X* page) {
      MACO_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        if constexpr (!kHeld) x[s] = shared_load16(row + s * kStep);
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j)
          w[j][s] = shared_load16(page + j * kWarps * P::kPitch + s * kStep);
      }
    }
  };
  using Sum = DiagonalSum<is_same<X, bf16>>;

  // Two values summed over the warp, in the order of team_reduce: the lower lanes get the first,
  // the upper ones the second.
  static constexpr int kHalf = kWarpLanes > 1 ? kWarpLanes / 2 : 1;
  static MACO_FN float total(float first, float second) {
    const bool upper = warp_lane() >= kHalf;
    float sum = fadd(upper ? second : first, shuffle_xor(upper ? first : second, kHalf));
    MACO_UNROLL
    for (int mask = kHalf / 2; mask > 0; mask /= 2) sum = fadd(sum, shuffle_xor(sum, mask));
    return sum;
  }
  // Which of the warp's results a lane finishes: kOut and more if none. Its column of a slice.
  static MACO_FN int result() {
    const int i = warp_lane() % kHalf * 2 + (warp_lane() >= kHalf ? 1 : 0);
    return C::paired && kOut == 1 && i == 1 ? kOut : i;
  }
  static MACO_FN int column() { return warp() + result() * kWarps; }
  static MACO_FN void store(const MatmulTile<C>& t, const Args& args, i64 n,
                            const Sum (&sums)[kOwn], const typename C::More& more) {
    constexpr int kTotals = (kOwn + 1) / 2;
    float totals[kTotals];
    MACO_UNROLL
    for (int q = 0; q < kTotals; ++q)
      totals[q] = total(sums[2 * q].own(), kOwn > 1 ? sums[kOwn > 1 ? 2 * q + 1 : 0].own() : 0.0f);
    float mine = totals[0], other = 0;
    if constexpr (C::paired && kOut == 1) {
      other = shuffle_xor(mine, kHalf);
    } else {
      MACO_UNROLL
      for (int q = 0; q < kTotals; ++q) {
        if (result() / 2 == q) mine = totals[q];
        if (C::paired && (result() + kOut) / 2 == q) other = totals[q];
      }
    }
    if (result() >= kOut) return;
    if constexpr (C::paired) {
      matmul_finish(t, args, 0, n + column(), more, mine, other);
    } else {
      matmul_finish(t, args, 0, n + column(), more, mine);
    }
  }
  static MACO_FN typename C::More fetch(const MatmulTile<C>& t, const Args& args, i64 n) {
    if (result() < kOut && n + column() < t.end) return C::fetch(args, t.row, n + column());
    return {};
  }

  // `row`: the row of a, in the scratch memory, whole, in the order of pairs. `more`: what finishes
  // the first slice, fetched while a was waited for.
  static MACO_FN void run(Context& ctx, const MatmulTile<C>& t, const Args& args, const X* row,
                          typename C::More more) {
    row += warp_lane() * kVec;
    const i64 own = warp() * P::kPitch + warp_lane() * kVec;
    Vec<u32, 4> x[kHeld ? kPages * kSteps : 1];
    if constexpr (kHeld) {
      MACO_UNROLL
      for (int s = 0; s < kPages * kSteps; ++s) x[s] = shared_load16(row + s * kStep);
    }
    PageTaker pages(ctx);
    Page page, next;
    const PageUse first = pages.next_page();
    page.load(row, (const X*)pages.take() + own);
    pages.release_page(first);
    for (i64 n = t.col; n < t.end; n += P::kCols) {
      if (n > t.col) more = fetch(t, args, n);
      Sum sums[kOwn];
      const auto take = [&](int p) {
        const bool more_pages = p + 1 < kPages || n + P::kCols < t.end;
        const PageUse use = pages.next_page();
        if (more_pages) next.load(row + (p + 1) % kPages * P::kDepth, (const X*)pages.take() + own);
        MACO_UNROLL
        for (int s = 0; s < kSteps; ++s) {
          MACO_UNROLL
          for (int j = 0; j < kOwn; ++j)
            sums[j].add_paired(kHeld ? x[p * kSteps + s] : page.x[s], page.w[j][s]);
        }
        if (more_pages) pages.release_page(use);
        page = next;
      };
      if constexpr (kHeld) {
        MACO_UNROLL
        for (int p = 0; p < kPages; ++p) take(p);
      } else {
        for (int p = 0; p < kPages; ++p) take(p);
      }
      store(t, args, n, sums, more);
    }
    pages.finish();
  }
};

}  // namespace maco::ops
