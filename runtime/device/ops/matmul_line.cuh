// matmul of one row, b[N,K] of 16-bit floats, on tensor cores. Pages hold columns of b as they lie
// in memory, one behind the other ("in line"): copies of 16 contiguous KB get 5 % more out of
// memory than boxes of sixteen runs of 1 KB (docs/notebook/decoding.md, "Weights in line").
//
// Short columns, of less than 2,048 elements, belong to one warp each, as in matmul_row.cuh. For
// longer columns steps of 256 elements go round the warps: step k of a column belongs to warp k mod
// kWarps. If a page holds four or more such columns, a few warps share each column, and each of
// them has one run of it; there are then half as many sums. If a column ends in the middle of a
// round, the next column continues with the other warps. A lane has 16 bytes of each step, and
// keeps everything that it multiplies with them in registers. The warps' sums of a column are added
// at the end of a tile, or of some columns.

namespace maco::ops {

// How columns lie in pages. A slice is whole columns and whole pages. Short columns: a slice has
// the same number for each warp. Columns that warps share: a slice is four pages of all parts, with
// at most 8 columns of each part. Long columns: a slice is the least possible, or two columns of
// all parts; if it has an odd, small number of pages, twice that, since two sets of registers take
// pages in turn.
template <class C>
struct LinePages {
  using W = typename C::W;
  static constexpr int kParts = C::has_pair ? 2 : 1;
  static constexpr i64 kStep = 256, kSteps = 2048;  // elements of K: of a warp; of all eight
  static constexpr bool kShort = C::K < kSteps;
  static constexpr i64 kColumn = C::K * (i64)sizeof(W), kPage = C::b_page_bytes,
                       kElements = kPage / (i64)sizeof(W);
  // Other columns: each warp has a run of a block of columns, one after the other.
  static constexpr bool kShared =
      !kShort && kElements % C::K == 0 && kElements / C::K >= 4 && kElements <= 16384;
  static constexpr i64 kBlock = kShared ? kElements : kSteps, kRun = most(1, kBlock / 8);
  static constexpr int kRunSteps = (int)most(1, kRun / kStep);
  static constexpr int kBlockColumns = kShared ? (int)(kElements / C::K) : 1;
  static constexpr int kSharers = 8 / kBlockColumns;  // warps that share a column
  // Steps of a column; and steps after which a warp is at the same place of another column: after
  // two columns if columns end in the middle of a round.
  static constexpr int kColumnSteps = (int)(C::K / kStep);
  static constexpr bool kHalf = !kShort && kColumnSteps % 8 == 4;
  static constexpr int kTurn = kColumnSteps * (kHalf ? 2 : 1) / kSharers;
  static constexpr int kPageSteps = (int)(kElements / kSteps);  // of a warp
  // The greatest common divisor; 0 if no page suits.
  static MACO_FN constexpr int common(int a, int b) { return b == 0 ? a : common(b, a % b); }
  static constexpr int kLeast = kPageSteps * 8 / common(kPageSteps * 8, kColumnSteps);
  static constexpr int kLeastPages = kLeast * kColumnSteps / (kPageSteps * 8) * kParts;
  static constexpr bool kTwice =
      !kHalf && (kLeast * kParts == 1 || (kLeastPages <= 3 && kLeastPages % 2 == 1));

  static constexpr int kCols = kShort    ? (int)most(8, kPage / kColumn)
                               : kShared ? least(8, kBlockColumns * 4 / kParts)
                               : kTwice  ? 2 * kLeast
                                         : kLeast;
  static constexpr int kPages = (int)(kCols * kColumn / kPage);  // of each part
  static constexpr int kValues = kCols / kBlockColumns;          // sums of a warp, of each part
  static_assert(sizeof(W) == 2 &&
                    (kShort
                         ? kSteps % C::K == 0 && C::K % kStep == 0
                         : C::K % (kHalf ? kSteps / 2 : kSteps) == 0 && kElements % kSteps == 0) &&
                    (!kHalf || (kCols % 2 == 0 && kTurn <= 8)) && kBlockColumns <= 8 &&
                    kCols * kColumn == kPages * kPage,
                "whole steps");
  static_assert(C::N % kCols == 0 && C::BN % kCols == 0, "whole slices");
};

// Slices of short columns in the form that matmul_row.cuh takes: its pages are runs of K of all
// columns of a slice.
template <class C>
struct ShortPages {
  using L = LinePages<C>;
  static constexpr int kParts = L::kParts, kVec = 8, kOwn = L::kCols * kParts / 8;  // of a warp
  static constexpr i64 kCols = L::kCols, kPageCols = kCols * kParts;
  // A lane takes four vectors at a time.
  static constexpr i64 kDepth = C::K / most(1, least(kOwn*(C::K / 256) / 4, C::K / 256));
  template <class X>
  struct Source {
    static constexpr int kPages = L::kPages * kParts, kLast = (int)(C::K / kDepth) - 1;
    const X* first[kParts];  // of this warp's columns
    MACO_FN void take(PageTaker& pages, int page) {
      if (page > 0) return;
      pages.await(kPages);
      const PageUse slice = pages.next_page();
      const i64 at = warp() * L::kColumn;
      MACO_UNROLL
      for (int part = 0; part < kParts; ++part)
        first[part] = (const X*)(pages.page(slice.behind((u32)(part * L::kPages + at / L::kPage))) +
                                 at % L::kPage) +
                      warp_lane() * kVec;
      MACO_UNROLL
      for (int p = 0; p < kPages; ++p) pages.take_landed();
    }
    MACO_FN const X* column(int page, int i) const {
      return first[i / (kOwn / kParts)] + i % (kOwn / kParts) * kWarps * C::K + page * kDepth;
    }
    MACO_FN void release(PageTaker& pages, int page) {
      if (page == kLast) pages.release_together(kPages);
    }
  };
};

// Fills pages with a tile's columns of b, and of a pair's other b, from `b` and `other` on. One of
// the loader's threads requests them. All matmuls of a kernel share this function, as
// fill_row_boxes.
MACO_OP void fill_lines(Context& ctx, const char* b, const char* other, u32 slices, u32 pages,
                        u32 bytes) {
  PageFiller filler(ctx);
  int lane;
  if (elected(lane)) {
    BoxFiller<kStreamedPages> boxes(filler);
    u32 left = pages;  // of the slice, of this matrix
    for (u32 i = slices * pages * (other ? 2 : 1); i > 0; --i) {
      if (!boxes.acquire(bytes)) break;
      filler.copy_line(filler.page(), b, bytes);
      boxes.publish();
      b += bytes;
      if (--left > 0) continue;
      left = pages;
      if (!other) continue;
      const char* const turn = b;
      b = other;
      other = turn;
    }
  }
  filler.finish(lane);
}
template <class C>
MACO_OP void matmul_line_load(Context& ctx, Args args, u32 index) {
  using P = LinePages<C>;
  const MatmulTile<C> t(ctx, index);
  C::Rows::prefetch(args);
  if constexpr (!all_b_ahead<C>()) boxes_begin();
  const i64 first = t.col * C::K * (i64)sizeof(typename C::W);
  const char* other = nullptr;
  if constexpr (C::has_pair) other = args.ptr<const char>(C::other_at) + first;
  fill_lines(ctx, args.ptr<const char>(1) + first, other, (u32)(t.end - t.col) / (u32)P::kCols,
             (u32)P::kPages, (u32)C::b_page_bytes);
}

// A thread's part of the row: 16 bytes of each step. If several warps need the same part, all of
// them fetch it together through the scratch memory. A part that is too long for registers also
// lies there, where no other thread reads it.
template <class C>
struct LineRow {
  using X = typename C::X;
  using P = LinePages<C>;
  static constexpr int V = 8, kSteps = P::kTurn;
  static constexpr bool kHeld = kSteps <= 8, kTogether = P::kSharers < 8;
  static_assert(kHeld || !kTogether, "pages are small");
  static constexpr i64 kScratch = kHeld && !kTogether ? 0 : C::K * (i64)sizeof(X);
  // Vectors that are loaded at once.
  static constexpr int kAtOnce = kHeld ? kSteps : 4;
  Vec<X, V> held[kHeld ? kSteps : 1];
  X* const scratch;

  static MACO_FN i64 place(int step) {
    const i64 at = warp() % P::kSharers * P::kRun + warp_lane() * V +
                   step / P::kRunSteps * P::kBlock + step % P::kRunSteps * P::kStep;
    return P::kHalf && at >= C::K ? at - C::K : at;
  }
  // Whether this thread's part of `step` counts: with kHalf several threads hold the same part of
  // the row, and only one of them may use it.
  static MACO_FN bool counts(int step) { return !P::kHalf || step * 8 + warp() < P::kColumnSteps; }
  MACO_FN explicit LineRow(Context& ctx) : scratch((X*)ctx.scratch()) {}
  // Returns the part of step k; in the order of pairs (put_run) if kTogether.
  MACO_FN Vec<u32, 4> step(int k) const {
    if constexpr (kHeld) {
      return bits_as<Vec<u32, 4>>(held[k]);
    } else {
      // (Not shared_load16, which compilers may move before this thread's own store.)
      return *(const Vec<u32, 4>*)(scratch + place(k));
    }
  }
  MACO_FN void put(int k, const Vec<X, V>& x) {
    if constexpr (kHeld) {
      held[k] = x;
    } else {
      *(Vec<X, V>*)(scratch + place(k)) = x;
    }
  }
  // Calls f(step) for the steps of a row, as many at a time as registers hold.
  template <class F>
  static MACO_FN void each(F f) {
    if constexpr (kHeld) {
      MACO_UNROLL
      for (int k = 0; k < kSteps; ++k) f(k);
    } else {
      MACO_ROLLED
      for (int k = 0; k < kSteps; ++k) f(k);
    }
  }
  // All threads fetch it together.
  MACO_FN void load_together(Context& ctx, const MatmulTile<C>& t, const Args& args) {
    C::Rows::template stage_lone<C::K, true>(ctx, t, args, scratch);
    cta_sync();
    MACO_UNROLL
    for (int k = 0; k < kSteps; ++k)
      held[k] = bits_as<Vec<X, V>>(shared_load16(scratch + place(k)));
  }
  // Loads the row as it is.
  MACO_FN void load(const MatmulTile<C>& t, const Args& args) {
    const auto row = matmul_rows(t, args);
    for (int first = 0; first < kSteps; first += kAtOnce) {
      const auto at = [&](int b) { return row + place(least(first + b, kSteps - 1)); };
      if constexpr (C::a_packets) {
        PacketRun<X, V> runs[kAtOnce];
        receive_together(args.ctx, 0, runs, at);
        MACO_UNROLL
        for (int b = 0; b < kAtOnce; ++b)
          if (first + b < kSteps) put(first + b, runs[b].values());
      } else {
        Vec<X, V> xs[kAtOnce];
        MACO_UNROLL
        for (int b = 0; b < kAtOnce; ++b) xs[b] = gload_vec<V>(at(b));
        MACO_UNROLL
        for (int b = 0; b < kAtOnce; ++b)
          if (first + b < kSteps) put(first + b, xs[b]);
      }
    }
  }
};

// A task. Its constructor does what doesn't depend on the row, before the wait for the row.
template <class C>
struct MatmulLine {
  using P = LinePages<C>;
  using X = typename C::X;
  using Sums = DiagonalSum<is_same<X, bf16>>;
  static constexpr int kParts = P::kParts, kSteps = P::kPageSteps, kPages = P::kPages * kParts,
                       kTotals = P::kValues * kParts;
  // How many columns are finished together, each by a thread. If the tile has more, two sets of
  // sums are used in turn, with a barrier behind each.
  static constexpr bool kAll = C::BN * kParts <= kConsumers;
  static constexpr int kGroup = kAll ? (int)C::BN : kConsumers / 2 / kParts;
  static constexpr int kSet = kGroup * kParts * P::kSharers;  // sums
  static_assert(kWarps == 8 && kGroup % P::kCols == 0 && (kTotals & (kTotals - 1)) == 0,
                "who has what");
  static_assert(LineRow<C>::kScratch + (kAll ? 1 : 2) * kSet * 4 <= kScratchBytes,
                "sums fit behind the row");
  using To = decltype(to_write<typename C::Y, C::y_packets>(*(const Args*)nullptr, 0));

  struct Page {
    Vec<u32, 4> w[kSteps];
    MACO_FN void load(const char* page) {
      MACO_UNROLL
      for (int s = 0; s < kSteps; ++s)
        w[s] = shared_load16(
            page + warp_lane() * 16 +
            2 * (warp() * P::kRun + s / P::kRunSteps * P::kBlock + s % P::kRunSteps * P::kStep));
    }
  };

  const MatmulTile<C>& t;
  const Args& args;
  float* const sums;  // of a set: [part][column of the group][a warp of the column]
  const int cols;
  To to;
  typename C::Asks asks;
  PageTaker pages;
  Page page, next;

  MACO_FN MatmulLine(Context& ctx, const MatmulTile<C>& tile, const Args& arguments)
      : t(tile),
        args(arguments),
        sums((float*)(ctx.scratch() + LineRow<C>::kScratch)),
        cols((int)(t.end - t.col)),
        to(matmul_results(t, args) + (t.col + consumer_thread())),
        pages(ctx) {
    ask(0);
    const PageUse first = pages.next_page();
    page.load(pages.take());
    pages.release_page(first);
  }
  // Whether this thread finishes a column of the group that begins at `begin`.
  MACO_FN bool finishes(int begin) const {
    return consumer_thread() < kGroup && begin + consumer_thread() < cols;
  }
  // Threads that finish nothing load the operands of the tile's first column, so that all do the
  // same.
  MACO_FN void ask(int begin) {
    asks.ask(args, t.row, t.col + (finishes(begin) ? begin + consumer_thread() : 0));
  }
  // Sums up to eight values over the diagonal; the diagonal's rows get one value each, in turn.
  static constexpr int kFolded = (int)least(8, kTotals);
  static MACO_FN int of_values() { return Sums::row() % kFolded; }
  static MACO_FN float folded(const float* values) {
    float v[kFolded];
    MACO_UNROLL
    for (int i = 0; i < kFolded; ++i) v[i] = values[i];
    int left = kFolded;
    MACO_UNROLL
    for (int bit = 0; bit < 3; ++bit) {
      constexpr int kAway[] = {4, 9, 18};  // lanes of rows that differ in the bit
      const bool odd = (Sums::row() >> bit & 1) != 0;
      left = (left + 1) / 2;
      MACO_UNROLL
      for (int i = 0; i < left; ++i) {
        const bool alone = kFolded >> bit <= 1;
        const float own = odd && !alone ? v[2 * i + 1] : v[alone ? i : 2 * i];
        const float others = odd || alone ? v[alone ? i : 2 * i] : v[2 * i + 1];
        v[i] = fadd(own, shuffle_xor(others, kAway[bit]));
      }
    }
    return v[0];
  }
  // Stores this warp's sums of a slice: column by column, part by part.
  MACO_FN void put(float* set, int column, const float (&values)[kTotals]) {
    MACO_UNROLL
    for (int i = 0; i < kTotals; i += kFolded) {
      const float sum = folded(values + i);
      const int mine = i + of_values();
      if (column >= 0 && Sums::has_one() && Sums::row() < kFolded)
        set[(mine / P::kValues * kGroup + column + mine % P::kValues * P::kBlockColumns +
             warp() / P::kSharers) *
                P::kSharers +
            warp() % P::kSharers] = sum;
    }
  }
  static MACO_FN float added(const float* of_warps) {
    float v[P::kSharers];
    MACO_UNROLL
    for (int w = 0; w < P::kSharers; ++w) v[w] = of_warps[w];
    MACO_UNROLL
    for (int left = P::kSharers / 2; left > 0; left /= 2) {
      MACO_UNROLL
      for (int w = 0; w < left; ++w) v[w] = fadd(v[w], v[w + left]);
    }
    return v[0];
  }
  MACO_FN void finish(const float* set, int begin, const typename C::More& more) {
    if (!finishes(begin)) return;
    const float* own = set + consumer_thread() * P::kSharers;
    const auto sealed = seal(to + begin);
    const i64 column = t.col + begin + consumer_thread();
    const float first = added(own);
    if constexpr (C::has_pair) {
      matmul_put(t, args, sealed, 0, column,
                 C::finish(more, first, added(own + kGroup * P::kSharers)));
    } else {
      matmul_put(t, args, sealed, 0, column, C::finish(more, first));
    }
  }

  // Multiplies page p of a slice; p is a constant once the loop over pages is unrolled.
  static MACO_FN void multiply(int p, const Page& page, const LineRow<C>& row, Sums& sum,
                               float (&values)[kTotals]) {
    constexpr int kColumns = P::kHalf ? 2 : 1, kMiddle = P::kHalf ? P::kTurn / 2 : P::kTurn;
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int at = p * kSteps + s, k = at % P::kTurn, column = at / P::kTurn * kColumns;
      // At the middle of the page half of the warps end a column, and the others begin one.
      const bool ended = k == kMiddle && warp() >= kWarps / 2;
      if (ended) values[column] = sum.on_diagonal();
      if (k == 0 || ended) sum = {};
      if constexpr (LineRow<C>::kTogether)
        sum.add_paired(row.step(k), page.w[s]);
      else
        sum.add(row.step(k), page.w[s]);
      if (k == kMiddle && !ended) {
        values[column] = sum.on_diagonal();
        sum = {};
      }
      if (k == P::kTurn - 1) values[column + kColumns - 1] = sum.on_diagonal();
    }
  }

  MACO_FN void run(const LineRow<C>& row) {
    typename C::More more = asks.more(args);
    // A slice's sums are stored while the next slice is multiplied.
    float values[kTotals] = {}, before[kTotals] = {};
    Sums sum;
    for (int begin = 0; begin < cols; begin += kGroup) {
      float* const set = kAll ? sums : sums + begin / kGroup % 2 * kSet;
      const int end = kAll ? cols : (int)least(cols, begin + kGroup);
      for (int column = begin; column < end; column += P::kCols) {
        const bool is_last = column + P::kCols >= cols;
        MACO_UNROLL
        for (int p = 0; p < kPages; ++p) {
          const PageUse use = pages.next_page();
          const bool goes_on = p + 1 < kPages || !is_last;
          if (goes_on) next.load(pages.take());
          if (p == 0) put(set, column - begin - P::kCols, before);
          multiply(p, page, row, sum, values);
          if (goes_on) pages.release_page(use);
          page = next;
        }
        MACO_UNROLL
        for (int i = 0; i < kTotals; ++i) before[i] = values[i];
      }
      put(set, end - begin - P::kCols, before);
      cta_sync();
      finish(set, begin, more);
      if (!kAll && begin + kGroup < cols) {
        ask(begin + kGroup);
        more = asks.more(args);
      }
    }
    pages.finish();
  }
};

// For targets without warps: one thread, column by column.
template <class C>
MACO_FN void matmul_line_alone(Context& ctx, const MatmulTile<C>& t, const Args& args) {
  using P = LinePages<C>;
  using X = typename C::X;
  using W = typename C::W;
  constexpr int kElements = (int)(C::b_page_bytes / (i64)sizeof(W));
  X* const row = (X*)ctx.scratch();
  static_assert(C::K * (i64)sizeof(X) <= kScratchBytes, "the row fits");
  C::Rows::template stage_lone<C::K, false>(ctx, t, args, row);
  PageTaker pages(ctx);
  for (i64 n = t.col; n < t.end; n += P::kCols) {
    float values[P::kParts][P::kCols] = {};
    for (int part = 0; part < P::kParts; ++part) {
      for (int p = 0; p < P::kPages; ++p) {
        const W* page = (const W*)pages.take();
        for (int e = 0; e < kElements; e += 8) {
          const i64 at = p * (i64)kElements + e;
          float& sum = values[part][at / C::K];
          for (int v = 0; v < 8; ++v)
            sum = fn::mul_add(to_acc(row[at % C::K + v]), to_acc(page[e + v]), sum);
        }
        pages.release();
      }
    }
    for (int c = 0; c < P::kCols; ++c) {
      if constexpr (C::has_pair)
        matmul_store(t, args, 0, n + c, values[0][c], values[1][c]);
      else
        matmul_store(t, args, 0, n + c, values[0][c]);
    }
  }
  pages.finish();
}

template <class C>
MACO_OP void matmul_line(Context& ctx, Args args, u32 index) {
  const MatmulTile<C> t(ctx, index);
  if constexpr (kWarpLanes == 1) {
    matmul_line_alone<C>(ctx, t, args);
  } else if constexpr (LinePages<C>::kShort) {
    typename C::X* const a = (typename C::X*)ctx.scratch();
    using Row = MatmulRow<C, ShortPages<C>>;
    static_assert(kWarps == 8 && Row::kSuits && Row::kHeld, "short columns");
    Row row(ctx, t, args);
    C::Rows::template stage_lone<C::K, true>(ctx, t, args, a);
    row.take_asked();
    cta_sync();
    row.run(a);
  } else {
    MatmulLine<C> line(ctx, t, args);
    LineRow<C> row(ctx);
    if constexpr (LineRow<C>::kTogether)
      row.load_together(ctx, t, args);
    else
      C::Rows::load_line(ctx, t, args, row);
    line.run(row);
  }
}

}  // namespace maco::ops
