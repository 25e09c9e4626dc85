// matmul of one row, b[N,K] of 16-bit floats, on tensor cores. A warp has some columns of a page,
// its lanes split K, and a lane's part of the row stays in registers if it fits.
//
// A page takes a warp a few hundred cycles, because steps wait for each other. So the next page is
// loaded into registers while one is multiplied.

namespace maco::ops {

// A sum of products of one row on tensor cores. Of 512 bytes of a column of b each lane has 16, and
// four lanes have a run of 64. In fragment a, the even words of the eight runs are the first eight
// rows, and the odd words the others. In fragment b, words of the row of a are the columns. So the
// products of matching runs are on the diagonal: even words in the upper half, odd words in the
// lower. The other products aren't used.
template <bool kBf16>
struct DiagonalSum {
  float even[4] = {}, odd[4] = {};
  MACO_FN void add(const Vec<u32, 4>& x, const Vec<u32, 4>& w) {
    add_paired({{x.v[0], x.v[2], x.v[1], x.v[3]}}, w);
  }
  // Likewise for x in the order of pairs (put_run).
  MACO_FN void add_paired(const Vec<u32, 4>& x, const Vec<u32, 4>& w) {
    multiply_matrices<kBf16>(even, w.v, x.v[0], x.v[1]);
    multiply_matrices<kBf16>(odd, w.v, x.v[2], x.v[3]);
  }
  // The lanes of the diagonal have a row each: 0, 4, 9, 13, 18, 22, 27 and 31.
  static MACO_FN int row() { return warp_lane() >> 2; }
  static MACO_FN bool has_one() { return row() >> 1 == (warp_lane() & 3); }
  // The sum of such a lane.
  MACO_FN float on_diagonal() const {
    return row() & 1 ? fadd(even[1], odd[3]) : fadd(even[0], odd[2]);
  }
  MACO_FN float own() const { return has_one() ? on_diagonal() : 0.0f; }
};

// A task. Its constructor does what doesn't depend on the row, before the wait for the row.
template <class C, class P>
struct MatmulRow {
  using X = typename C::X;
  static constexpr int kVec = P::kVec, kStep = kVec * kWarpLanes;
  // (For unsuitable shapes none of these is used.)
  static constexpr int kSteps = (int)most(1, P::kDepth / kStep);            // of a page
  static constexpr int kPages = (int)((C::K + P::kDepth - 1) / P::kDepth);  // of a slice
  // With boxes the last page may reach beyond K; it has zeros there, and so has the row.
  static constexpr i64 kRow = kPages * P::kDepth;
  static constexpr int kOwn = (int)most(1, P::kPageCols / kWarps);  // columns of a warp in a page
  static constexpr int kOut = kOwn / P::kParts;                     // columns of the result
  // Whether the row is in registers. If elements are also sent, a long row would push the slots'
  // addresses into local memory, and loading them back would delay the end.
  static constexpr bool kHeld = kPages * kSteps <= 8;
  // Whether this method suits: pages and warps must be whole.
  static constexpr bool kSuits =
      kWarpLanes > 1 && P::kDepth % kStep == 0 && C::K % (C::boxes ? kStep : P::kDepth) == 0 &&
      P::kPageCols % (kWarps * P::kParts) == 0 && (kOwn == 1 || kOwn % 2 == 0) && kOwn <= 8;

  using Source = typename P::template Source<X>;

  // A lane's part of a page.
  struct Page {
    Vec<u32, 4> x[kHeld ? 1 : kSteps], w[kOwn][kSteps];
    MACO_FN void load_row(const X* row) {
      if constexpr (!kHeld) {
        MACO_UNROLL
        for (int s = 0; s < kSteps; ++s) x[s] = shared_load16(row + s * kStep);
      }
    }
    MACO_FN void load_columns(const Source& from, int page) {
      MACO_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) w[j][s] = shared_load16(from.column(page, j) + s * kStep);
      }
    }
  };
  using Sum = DiagonalSum<is_same<X, bf16>>;

  // Sums two values over the diagonal, in the order of team_reduce: even rows get the first sum,
  // odd rows the second. (The other lanes' sums aren't used.)
  static MACO_FN float total(float first, float second) {
    const bool odd = (Sum::row() & 1) != 0;
    float sum = fadd(odd ? second : first, shuffle_xor(odd ? first : second, 4));
    sum = fadd(sum, shuffle_xor(sum, 18));
    return fadd(sum, shuffle_xor(sum, 9));
  }
  // A tile's slices. Their sums are added up and finished together behind the last slice, if the
  // diagonal has a row for each and the ring has room for all pages. If slices come from memory one
  // by one, each is finished while the next one comes.
  static constexpr int kCols = (int)P::kCols, kSlices = (int)((C::BN + kCols - 1) / kCols);
  static constexpr bool kTogether =
      kSlices * kOwn <= 8 && kSlices * Source::kPages <= (int)kRingPages;
  static constexpr int kSums = (kTogether ? kSlices : 1) * kOwn;
  using To = decltype(to_write<typename C::Y, C::y_packets>(*(const Args*)nullptr, 0));

  const MatmulTile<C>& t;
  const Args& args;
  const int cols;
  int left;    // slices behind the current one
  int column;  // that this lane finishes in the first slice, or in all
  To to;       // where the result goes
  typename C::Asks asks;
  typename C::More more;  // operands that finish the result
  PageTaker pages;
  Source source;
  Page page, next;

  MACO_FN MatmulRow(Context& ctx, const MatmulTile<C>& tile, const Args& arguments)
      : t(tile),
        args(arguments),
        cols((int)(t.end - t.col)),
        left(kSlices == 1 ? 0 : (cols - 1) / kCols),
        // If a tile doesn't have all slices, its sums are the last ones.
        column((kTogether ? (left + 1 - kSlices) * kCols : 0) + Sum::row() / kOwn * kCols + warp() +
               Sum::row() % kOwn * kWarps),
        to(matmul_results(t, args) + (t.col + column)),
        pages(ctx) {
    ask();
    source.take(pages, 0);
    page.load_columns(source, 0);
    source.release(pages, 0);
  }

  // Whether this lane finishes a column: that of its row's sum, if there is one.
  MACO_FN bool finishes() const {
    return Sum::has_one() && Sum::row() < kSums && Sum::row() % kOwn < kOut &&
           (u32)column < (u32)cols;
  }
  // Lanes that finish nothing load the operands of the tile's first column, so that all do the
  // same.
  MACO_FN void ask() { asks.ask(args, t.row, t.col + (finishes() ? column : 0)); }
  MACO_FN void take_asked() { more = asks.more(args); }
  // The total of this lane's row, or of the row `further` behind it: those of rows 2q and 2q + 1
  // are totals[q].
  template <int kTotals>
  static MACO_FN float of_row(const float (&totals)[kTotals], int further) {
    static_assert(kTotals <= 4, "there are eight rows");
    const int pair = (Sum::row() + further) / 2;
    const float low = pair & 1 ? totals[least(1, kTotals - 1)] : totals[0];
    const float high = pair & 1 ? totals[kTotals - 1] : totals[least(2, kTotals - 1)];
    return kTotals > 2 && pair & 2 ? high : low;
  }
  MACO_FN void store(const float (&sums)[kSums]) {
    const auto sealed = seal(to);
    constexpr int kTotals = (kSums + 1) / 2;
    float totals[kTotals];
    MACO_UNROLL
    for (int q = 0; q < kTotals; ++q)
      totals[q] = total(sums[2 * q], 2 * q + 1 < kSums ? sums[least(2 * q + 1, kSums - 1)] : 0.0f);
    const float mine = of_row(totals, 0);
    [[maybe_unused]] float other = 0;
    if constexpr (C::has_pair) other = kOut == 1 ? shuffle_xor(mine, 4) : of_row(totals, kOut);
    if (!finishes()) return;
    if constexpr (C::has_pair) {
      matmul_put(t, args, sealed, 0, t.col + column, C::finish(more, mine, other));
    } else {
      matmul_put(t, args, sealed, 0, t.col + column, C::finish(more, mine));
    }
  }

  // `row`: the row of a in the scratch memory, whole, in the order of pairs: kRow elements.
  MACO_FN void run(const X* row) {
    row += warp_lane() * kVec;
    Vec<u32, 4> x[kHeld ? kPages * kSteps : 1];
    if constexpr (kHeld) {
      MACO_UNROLL
      for (int s = 0; s < kPages * kSteps; ++s) x[s] = shared_load16(row + s * kStep);
    }
    page.load_row(row);
    const auto take = [&](Sum(&slice)[kOwn], int p) {
      const bool goes_on = p + 1 < kPages || (kSlices > 1 && left > 0);
      const int follows = (p + 1) % kPages;
      if (goes_on) {
        source.take(pages, follows);
        next.load_row(row + follows * P::kDepth);
        next.load_columns(source, follows);
      }
      MACO_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j)
          slice[j].add_paired(kHeld ? x[p * kSteps + s] : page.x[s], page.w[j][s]);
      }
      if (goes_on) source.release(pages, follows);
      page = next;
    };
    float sums[kSums] = {};
    do {
      Sum slice[kOwn];
      if constexpr (kHeld) {
        MACO_UNROLL
        for (int p = 0; p < kPages; ++p) take(slice, p);
      } else {
        for (int p = 0; p < kPages; ++p) take(slice, p);
      }
      MACO_UNROLL
      for (int s = 0; s < kSums; ++s)
        sums[s] = s + kOwn < kSums ? sums[least(s + kOwn, kSums - 1)]
                                   : slice[s + kOwn - kSums].on_diagonal();
      if constexpr (!kTogether) {
        store(sums);
        column += kCols;
        to = to + kCols;
        if (left > 0) {
          ask();
          take_asked();
        }
      }
    } while (kSlices > 1 && --left >= 0);
    if constexpr (kTogether) store(sums);
    pages.finish();
  }
};

}  // namespace maco::ops
