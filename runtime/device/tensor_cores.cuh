// tensor_cores.cuh: multiplies tiles that lie in pages, on tensor cores if the machine has suitable
// ones. Only this file knows what each lane holds: ops see blocks, and runs of a result.
//
// A block is 128 bytes of K, for all rows of an operand's tile. It is stored as lines of eight
// 16-byte chunks, whose order depends on the line's number (`swizzled`), so that neither writing
// lines nor reading down them has bank conflicts.
//  - along K: line r has row r of the tile.
//  - across K, where K is the slow axis in memory: with n elements in a line, line g * n + k has
//    element k of the rows [g n, g n + n) of the tile, whose rows are a multiple of n.
// In both layouts a tile of R rows has R lines, and blocks follow one another in a page.

namespace maco {

constexpr int kLineBytes = 128;
[[maybe_unused]] constexpr int kLineChunks = 8;
// Elements of K in a block; elements in a chunk.
template <class T>
constexpr int kBlockOf = kLineBytes / (int)sizeof(T);
template <class T>
constexpr int kChunkOf = 16 / (int)sizeof(T);
// The same for elements of 16 bits.
constexpr int kBlockK = 64;
[[maybe_unused]] constexpr int kChunk = 8;
constexpr int kPageLines = Cta::kPageBytes / kLineBytes;

// The offset of chunk `chunk` of line `line` in a page.
MACO_FN constexpr int swizzled(int line, int chunk) {
  return line * kLineBytes + ((chunk ^ (line & 7)) << 4);
}

// The blocks of K that a task takes: `count` blocks, every step-th from the first on.
struct Blocks {
  int first, step, count;
  int elements = kBlockK;  // of K, in a block
  MACO_FN i64 k(int block) const { return (i64)(first + block * step) * elements; }
};

// How the tiles of an operand with kRows rows lie in pages: a block takes kPages pages, or a page
// holds kBlocks blocks.
template <int kRows>
struct BlockPages {
  static constexpr int kPages = (kRows + kPageLines - 1) / kPageLines;
  static constexpr int kBlocks = kRows <= kPageLines ? kPageLines / kRows : 1;
  // Lines of a block in its page `p`; the last page may not be full.
  static MACO_FN constexpr int lines(int p) {
    return kRows - p * kPageLines < kPageLines ? kRows - p * kPageLines : kPageLines;
  }
  // Lines of each box that fills them.
  static constexpr int kBoxLines = kRows <= kPageLines       ? kRows
                                   : kRows % kPageLines == 0 ? kPageLines
                                                             : 64;
  static_assert(kRows % kBoxLines == 0 && kPageLines % kBoxLines == 0, "boxes fill a block");
};

// A block in the ring: lines from `line` of the page in `slot` on, and of the pages behind.
// `operand`: the descriptor of the ring's first line for wgmma.
struct Block {
  const char* pages;
  u32 operand;
  u32 slot;
  int line;
  MACO_FN explicit Block(const char* ring)
      : pages(ring), operand(wgmma_operand(ring)), slot(0), line(0) {}
  MACO_FN const char* page(int at) const {
    u32 page = slot + (u32)(at / kPageLines);
    page = page >= kRingPages ? page - kRingPages : page;
    return pages + (i64)page * Cta::kPageBytes;
  }
  // The address of the block's begin.
  MACO_FN const char* first_line() const { return page(line) + line % kPageLines * kLineBytes; }
  MACO_FN const char* chunk(int r, int c) const {
    return page(line + r) + swizzled((line + r) % kPageLines, c);
  }
  // The descriptor of the lines from r on.
  MACO_FN u32 operand_at(int r) const {
    constexpr u32 kUnit = 16;  // bytes
    u32 page = slot + (u32)((line + r) / kPageLines);
    page = page >= kRingPages ? page - kRingPages : page;
    return operand + page * (Cta::kPageBytes / kUnit) +
           (u32)((line + r) % kPageLines) * (kLineBytes / kUnit);
  }
};

// ---- the loader -------------------------------------------------------------

// Copies a chunk at (row, col) of a matrix of kCols columns, with zeros beyond `rows` and `cols`.
template <i64 kCols, class T>
MACO_FN void tensor_chunk(char* to, const T* matrix, i64 row, i64 col, i64 rows, i64 cols) {
  constexpr int kElements = kChunkOf<T>;
  const T* from = matrix + row * kCols + col;
  if (kCols % kElements == 0 && ((u64)matrix & 15) == 0) {
    const bool there = row < rows && col < cols;  // all of it, as columns are whole chunks
    copy16_or_zero(to, there ? from : matrix, there);
  } else {
    Vec<T, kElements> v = {};
    MACO_UNROLL
    for (int i = 0; i < kElements; ++i)
      if (row < rows && col + i < cols) v.v[i] = gload(from + i);
    *(Vec<T, kElements>*)to = v;
  }
}

// Fills the next pages with `blocks` from `block` on, for an operand's rows [first, first + kRows),
// of which [first, end) exist. kLd: columns of the matrix.
template <class P, int kRows, bool kAcross, i64 kK, i64 kLd, class T>
MACO_FN bool tensor_fill(PageFiller& pages, const T* matrix, i64 first, i64 end, int block,
                         const Blocks& blocks) {
  constexpr int kDown =
      kLoaders > 1 ? kLoaders / kLineChunks : 1;  // lines that the loaders fill at once
  const int chunk = kLoaders > 1 ? loader_thread() % kLineChunks : 0,
            down = loader_thread() / kLineChunks;
  for (int p = 0; p < P::kPages; ++p) {
    char* page = pages.acquire();
    if (!page) return false;
    constexpr int kLines = P::kPages > 1 ? kPageLines : kRows;  // of a block in a page
    for (int q = 0; q < P::kBlocks && block + q < blocks.count; ++q) {
      const i64 k = blocks.k(block + q);
      char* to = page + q * kLines * kLineBytes;
      MACO_UNROLL
      for (int l = 0; l < kLines; l += kDown) {
        const int line = l + down, at = p * kPageLines + line;
        for (int c = chunk; c < kLineChunks; c += kLoaders > 1 ? kLineChunks : 1) {
          if constexpr (kAcross) {
            constexpr int kDepth = kBlockOf<T>;
            tensor_chunk<kLd>(to + swizzled(line, c), matrix, k + at % kDepth,
                              first + at / kDepth * kDepth + c * kChunkOf<T>, kK, end);
          } else {
            tensor_chunk<kLd>(to + swizzled(line, c), matrix, first + at, k + c * kChunkOf<T>, end,
                              kK);
          }
        }
      }
    }
    pages.publish();
  }
  return true;
}

// ---- the consumers ----------------------------------------------------------

// Element k of row r.
template <class T, bool kAcross>
MACO_FN T block_element(const Block& block, int r, int k) {
  constexpr int kDepth = kBlockOf<T>;
  const int line = kAcross ? r / kDepth * kDepth + k : r, at = kAcross ? r % kDepth : k;
  return ((const T*)block.chunk(line, at / kChunkOf<T>))[at % kChunkOf<T>];
}

// Where a run of a result begins: at row tall + more_tall of the tall operand and wide + more_wide
// of the wide one. The compiler knows the `more` parts.
struct RunPlace {
  int tall, wide, more_tall, more_wide;
};

// Multiplies kTall rows of one operand by kWide rows of each of kSums others, summed over K, if one
// thread does all the work, whatever the method.
template <class T, int kTall, int kWide, bool kTallAcross, bool kWideAcross, bool kGroups,
          int kSums, bool kTogether>
struct LoneTile {
  using A = AccOf<T>;
  static constexpr bool kFinishes = false;
  template <bool kSwap>
  static constexpr int kMostRun = 16;
  A sums[kSums][kTall][kWide] = {};

  MACO_FN void begin() {}
  MACO_FN void commit() {}
  MACO_FN void wait() {}
  MACO_FN void multiply(const Block& tall, const Block (&wide)[kSums]) {
    for (int s = 0; s < kSums; ++s) {
      constexpr int kDepth = kBlockOf<T>;
      A b[kDepth][kWide];
      for (int k = 0; k < kDepth; ++k)
        for (int c = 0; c < kWide; ++c)
          b[k][c] = to_acc(block_element<T, kWideAcross>(wide[s], c, k));
      for (int r = 0; r < kTall; ++r)
        for (int k = 0; k < kDepth; ++k) {
          const A a = to_acc(block_element<T, kTallAcross>(tall, r, k));
          for (int c = 0; c < kWide; ++c) sums[s][r][c] = fn::mul_add(a, b[k][c], sums[s][r][c]);
        }
    }
  }
  // For each pair of a head (heads have kDim wide rows; kAdjacent: pairs are adjacent, else half a
  // head apart) and each tall row: calls about(tall row, pair) once, and with its result f(about,
  // sum, the other's sum) for each head for which takes(its first wide row) is true. For a single
  // sum.
  template <int kDim, bool kAdjacent, class About, class Takes, class F>
  MACO_FN void each_pair(About about, Takes takes, F f) {
    for (int r = 0; r < kTall; ++r)
      for (int pair = 0; pair < kDim / 2; ++pair) {
        const auto of_pair = about(r, pair);
        for (int head = 0; head < kWide; head += kDim)
          if (takes(head))
            f(of_pair, sums[0][r][head + (kAdjacent ? 2 * pair : pair)],
              sums[0][r][head + (kAdjacent ? 2 * pair + 1 : pair + kDim / 2)]);
      }
  }
  // Exchanges sums between two CTAs that have sums of the same tile. Each keeps one half of the
  // wide rows: it gives the other half's sums, give(index, 4 sums), and adds what it gets,
  // take(index). `half`: which half it keeps. A half is a tile of half the width; threads with no
  // part of it do nothing.
  using Half = LoneTile<T, kTall, kWide / 2, kTallAcross, kWideAcross, kGroups, kSums, false>;
  // Whether a half's rows are numbered as in the tile; else its first row is 0.
  static constexpr bool kInPlace = false;
  MACO_FN bool has_half(int) const { return true; }
  template <class Give>
  MACO_FN void give_half(int half, Give give) const {
    for (int r = 0; r < kTall; ++r)
      for (int c = 0; c < kWide / 2; c += 4) {
        Vec<float, 4> v;
        for (int e = 0; e < 4; ++e) v.v[e] = sums[0][r][half * kWide / 2 + c + e];
        give((r * kWide / 2 + c) / 4, bits_as<Vec<u32, 4>>(v));
      }
  }
  template <class Take>
  MACO_FN Half take_half(int half, Take take) const {
    Half own;
    for (int r = 0; r < kTall; ++r)
      for (int c = 0; c < kWide / 2; c += 4) {
        const auto v = bits_as<Vec<float, 4>>(take((r * kWide / 2 + c) / 4));
        for (int e = 0; e < 4; ++e)
          own.sums[0][r][c + e] = fadd(sums[0][r][half * kWide / 2 + c + e], v.v[e]);
      }
    return own;
  }
  // Calls to.fetch(place, fetched), then to.store(place, runs of kRun sums, fetched), for all
  // places: along the tall rows if kSwap, else along the wide ones.
  template <bool kSwap, int kRun, class F>
  MACO_FN void each_run(char*, const F& to) const {
    for (int x = 0; x < (kSwap ? kWide : kTall); ++x)
      for (int y = 0; y < (kSwap ? kTall : kWide); y += kRun) {
        const RunPlace at = {kSwap ? y : x, kSwap ? x : y, 0, 0};
        A runs[kSums][kRun];
        for (int s = 0; s < kSums; ++s)
          for (int i = 0; i < kRun; ++i)
            runs[s][i] = kSwap ? sums[s][at.tall + i][at.wide] : sums[s][at.tall][at.wide + i];
        typename F::template Fetched<kRun> fetched;
        to.template fetch<kRun>(at, fetched);
        to.template store<kRun>(at, runs, fetched);
      }
  }
};

// Multiplies kTall rows of one operand by kWide rows of each of kSums others, summed over K.
// kTogether: the wide rows of all sums are 192 or 256 adjacent lines. kGroups: groups of four warps
// multiply what bulk copies brought (wgmma); otherwise each warp multiplies what any copy brought
// (mma).
//
// Warps share the tile: kTallWarps by kWideWarps of them, each with kHigh x kAlong fragments of 16
// x 8 of each sum. However the tile is shared, each element is summed in the order of K, in steps
// of 32 bytes.
//
// Tensor cores keep few bits of sums of products of 8-bit floats (on sm_90 about 14, according to
// published measurements). So they sum one block at a time, between begin() and wait(), and blocks
// are added up elsewhere.
template <class T, int kTall, int kWide, bool kTallAcross, bool kWideAcross, bool kGroups,
          int kSums, bool kTogether>
struct WarpTile {
  static constexpr int kTallWarps = kGroups && kTall > 64 ? 8 : 4;
  static constexpr int kWideWarps = kWarps / kTallWarps;
  static constexpr int kHigh = kTall / (16 * kTallWarps), kAlong = kWide / (8 * kWideWarps);
  static constexpr int kSteps = kLineBytes / 32;
  static constexpr bool kEight = sizeof(T) == 1;  // bits
  static_assert(!kEight || (!kTallAcross && !kWideAcross), "across K are elements of 16 bits");
  static_assert(kHigh > 0 && kAlong > 0 && (kAlong == 1 || kAlong % 2 == 0),
                "warps share the tile evenly");
  static_assert(kSums == 1 || kAlong > 1, "fragments of a sum come in twos");

  template <bool kSwap>
  static constexpr int kMostRun = 16;
  using Sums = float[kSums][kHigh][kAlong][4];
  Sums sums = {};
  float recent[kEight ? kSums : 1][kHigh][kAlong][4] = {};  // of the block under way, if apart
  const int thread = task_thread(), lane = thread & 31, own_warp = (int)((u32)thread >> 5);
  const int group = own_warp / 4;  // of four warps

  // The first row of either operand that the warp has, in the tile.
  MACO_FN int first_tall() const { return own_warp % kTallWarps * (16 * kHigh); }
  MACO_FN int first_wide() const { return own_warp / kTallWarps * (8 * kAlong); }

  // Lines of 16 rows from `row` on, at step `step`, as a fragment a (kIsTall) or two fragments b.
  template <bool kAcross, bool kIsTall>
  MACO_FN void fragment(u32 (&to)[4], const Block& block, int row, int step) const {
    const int matrix = lane >> 3, line = lane & 7;
    // The matrices of a are rows 0, 8, 0, 8 and K 0, 0, 8, 8; for b the two are swapped.
    const int down = kIsTall ? matrix & 1 : matrix >> 1, deep = kIsTall ? matrix >> 1 : matrix & 1;
    if constexpr (kAcross) {
      load_matrices<true>(to, block.chunk(row / kBlockK * kBlockK + step * 16 + deep * 8 + line,
                                          row % kBlockK / kChunk + down));
    } else {
      load_matrices<false>(to, block.chunk(row + down * 8 + line, step * 2 + deep));
    }
  }

  // Surround multiplications of some blocks: committed ones go on until wait(), and use their pages
  // until then.
  MACO_FN void begin() {
    if constexpr (kEight && !kGroups) each_sum(recent, [](float& x, float) { x = 0; });
    if constexpr (kGroups) wgmma_begin();
  }
  MACO_FN void commit() {
    if constexpr (kGroups) wgmma_end();
  }
  MACO_FN void wait() {
    if constexpr (kGroups) wgmma_wait();
    if constexpr (kEight) each_sum(sums, [](float& x, float y) { x = fadd(x, y); });
  }
  // f(sum, the recent one)
  template <class F>
  MACO_FN void each_sum(Sums& of, F f) {
    MACO_UNROLL
    for (int i = 0; i < kSums * kHigh * kAlong * 4; ++i)
      f((&of[0][0][0][0])[i], (&recent[0][0][0][0])[i]);
  }
  // The sums to which products are added.
  MACO_FN Sums& open() {
    if constexpr (kEight) {
      return recent;
    } else {
      return sums;
    }
  }
  MACO_FN void multiply(const Block& tall, const Block (&wide)[kSums]) {
    if constexpr (kGroups) {
      multiply_groups(tall, wide);
    } else {
      multiply_warps(tall, wide);
    }
  }

  // A multiplication takes 64 tall rows, and at most 128 wide ones. The wide rows must be in one
  // page, or be adjacent. The fewer wide rows, the more often the tall rows are read.
  MACO_FN void multiply_groups(const Block& tall, const Block (&wide)[kSums]) {
    constexpr int kWideRows = kAlong * 8, kAtOnce = kTogether              ? kSums * kWideRows
                                                    : kWideRows < 128      ? kWideRows
                                                    : kWideRows % 128 == 0 ? 128
                                                                           : 64;
    // From one step to the next, in units of 16 bytes.
    constexpr int kAlongStep = 32 / 16, kAcrossStep = 16 * kLineBytes / 16;
    const u32 a = (u32)warp_uniform((int)tall.operand_at(kTallWarps == 8 ? group * 64 : 0));
    MACO_UNROLL
    for (int j = 0; j < kSums * kWideRows; j += kAtOnce) {
      const int sum = j / kWideRows, own = j % kWideRows;
      const int row = (kTallWarps == 8 ? 0 : group * kWideRows) + own;
      const u32 b = (u32)warp_uniform((int)wide[sum].operand_at(row));
      MACO_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        auto& to = (float (&)[kAtOnce / 8][4]) open()[sum][0][own / 8];
        const u32 a_step = a + (u32)(step * (kTallAcross ? kAcrossStep : kAlongStep)),
                  b_step = b + (u32)(step * (kWideAcross ? kAcrossStep : kAlongStep));
        if constexpr (kEight) {
          wgmma_f8<kAtOnce, is_same<T, f8e4m3>>(to, a_step, b_step, step > 0);
        } else {
          wgmma<kAtOnce, is_same<T, bf16>, kTallAcross, kWideAcross>(to, a_step, b_step);
        }
      }
    }
  }

  static MACO_FN void multiply_fragments(float (&to)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (kEight) {
      multiply_matrices_f8<is_same<T, f8e4m3>>(to, a, b0, b1);
    } else {
      multiply_matrices<is_same<T, bf16>>(to, a, b0, b1);
    }
  }

  MACO_FN void multiply_warps(const Block& tall, const Block (&wide)[kSums]) {
    MACO_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 a[kHigh][4];
      MACO_UNROLL
      for (int i = 0; i < kHigh; ++i)
        fragment<kTallAcross, true>(a[i], tall, first_tall() + 16 * i, step);
      MACO_UNROLL
      for (int s_j = 0; s_j < kSums * kAlong; s_j += 2) {
        const int s = s_j / kAlong, j = s_j % kAlong;
        u32 b[4];
        const int row = first_wide() + 8 * j;
        fragment<kWideAcross, false>(b, wide[s], kAlong == 1 ? row / 16 * 16 : row, step);
        const bool second = kAlong == 1 && row % 16 != 0;
        MACO_UNROLL
        for (int i = 0; i < kHigh; ++i) {
          multiply_fragments(open()[s][i][j], a[i], second ? b[2] : b[0], second ? b[3] : b[1]);
          if constexpr (kAlong > 1) multiply_fragments(open()[s][i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // As in LoneTile; both elements of a pair are sums of one thread.
  template <int kDim, bool kAdjacent, class About, class Takes, class F>
  MACO_FN void each_pair(About about, Takes takes, F f) {
    constexpr int kFragments = kDim / 8, kFar = kAdjacent ? 0 : kFragments / 2;  // of a head
    static_assert(kDim % 8 == 0 && (kAdjacent || kDim % 16 == 0) && kAlong % kFragments == 0,
                  "warps have whole heads");
    constexpr int kHalves = 2 * kHigh, kBeside = kAdjacent ? 1 : 2;  // rows, pairs of a fragment
    constexpr int kPairs = kDim / 2 / 4;                             // of a lane in a row
    static_assert(kPairs == (kAdjacent ? kFragments : kFar) * kBeside, "");
    decltype(about(0, 0)) of_pairs[kHalves][kPairs];
    MACO_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      MACO_UNROLL
      for (int p = 0; p < kPairs; ++p)
        of_pairs[h][p] = about(first_tall() + 8 * h + (lane >> 2),
                               kAdjacent ? p * 4 + (lane & 3) : p / 2 * 8 + (lane & 3) * 2 + p % 2);
    }
    MACO_UNROLL
    for (int head = 0; head < kAlong; head += kFragments) {
      if (!takes(first_wide() + head * 8)) continue;
      MACO_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        MACO_UNROLL
        for (int p = 0; p < kPairs; ++p) {
          float (&low)[4] = sums[0][h / 2][head + p / kBeside];
          float (&high)[4] = sums[0][h / 2][head + p / kBeside + kFar];
          const int e = h % 2 * 2 + p % kBeside;
          f(of_pairs[h][p], low[e], high[kAdjacent ? e + 1 : e]);
        }
      }
    }
  }

  // As in LoneTile. If a group of warps has one half alone, the half stays in place.
  static constexpr bool kInPlace = kTallWarps == 4;
  using Half = WarpTile<T, kTall, kInPlace ? kWide : kWide / 2, kTallAcross, kWideAcross, kGroups,
                        kSums, kInPlace && kTogether>;
  static constexpr int kOfHalf = kInPlace ? kAlong : kAlong / 2;  // fragments of a thread
  MACO_FN bool has_half(int half) const { return !kInPlace || group == half; }
  MACO_FN int index_of(int fragment) const {
    return kInPlace ? fragment * 128 + thread % 128 : fragment * kConsumers + thread;
  }
  MACO_FN float of_half(int half, int fragment, int e) const {
    return kInPlace || half == 0 ? sums[0][0][fragment][e]
                                 : sums[0][0][fragment + kAlong - kOfHalf][e];
  }
  template <class Give>
  MACO_FN void give_half(int half, Give give) const {
    static_assert(kHigh == 1 && kSums == 1, "warps have 16 rows of one sum");
    if (!has_half(half)) return;
    MACO_UNROLL
    for (int i = 0; i < kOfHalf; ++i) {
      Vec<float, 4> v;
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) v.v[e] = of_half(half, i, e);
      give(index_of(i), bits_as<Vec<u32, 4>>(v));
    }
  }
  template <class Take>
  MACO_FN Half take_half(int half, Take take) const {
    Half own;
    if (!has_half(half)) return own;
    MACO_UNROLL
    for (int i = 0; i < kOfHalf; ++i) {
      const auto v = bits_as<Vec<float, 4>>(take(index_of(i)));
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) own.sums[0][0][i][e] = fadd(of_half(half, i, e), v.v[e]);
    }
    return own;
  }

  // For 16-bit elements that need nothing but their sums: calls to.element(sums) where the sums
  // are, then to.put(place, runs of 8) along the wide rows. Half as many words as in each_run go
  // through `scratch`, and the next strip is finished while one is read back.
  static constexpr int kFinishedCols = kAlong * 8 < 64 ? kAlong * 8 : 64;  // of a strip
  static constexpr bool kFinishes = kFinishedCols >= 32 && kAlong * 8 % kFinishedCols == 0;
  template <class F>
  MACO_FN void each_finished(char* scratch, const F& to) const {
    using Y = typename F::Y;
    constexpr int kChunks = kFinishedCols / 8, kTimes = 16 * kChunks / 32;
    constexpr int kAcross = kAlong * 8 / kFinishedCols, kStrips = kHigh * kAcross;
    static_assert(kWarps * 16 * kLineBytes <= kScratchBytes, "a strip of each warp fits");
    char* own = scratch + own_warp * 16 * kLineBytes;
    Vec<Y, 2> pairs[kChunks][2];
    const auto finish = [&](int strip) {
      MACO_UNROLL
      for (int q = 0; q < kChunks; ++q) {
        MACO_UNROLL
        for (int half = 0; half < 2; ++half) {
          MACO_UNROLL
          for (int e = 0; e < 2; ++e) {
            float of_element[kSums];
            MACO_UNROLL
            for (int s = 0; s < kSums; ++s)
              of_element[s] = sums[s][strip / kAcross][strip % kAcross * kChunks + q][2 * half + e];
            pairs[q][half].v[e] = to.element(of_element);
          }
        }
      }
    };
    finish(0);
    MACO_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      warp_sync();
      MACO_UNROLL
      for (int q = 0; q < kChunks; ++q) {
        MACO_UNROLL
        for (int half = 0; half < 2; ++half) {
          // In a fragment, lane l has (l / 4, l % 4 * 2), the next element along, and both 8 rows
          // down.
          const int line = (lane >> 2) + 8 * half;
          ((Vec<Y, 2>*)(own + swizzled(line, q)))[lane & 3] = pairs[q][half];
        }
      }
      warp_sync();
      Vec<Y, 8> runs[kTimes];
      MACO_UNROLL
      for (int n = 0; n < kTimes; ++n) {
        const int at = n * 32 + lane;
        runs[n] = *(const Vec<Y, 8>*)(own + swizzled(at / kChunks, at % kChunks));
      }
      if (strip + 1 < kStrips) finish(strip + 1);
      MACO_UNROLL
      for (int n = 0; n < kTimes; ++n) {
        const int at = n * 32 + lane;
        to.template put<8>(RunPlace{first_tall() + at / kChunks, first_wide() + at % kChunks * 8,
                                    strip / kAcross * 16, strip % kAcross * kFinishedCols},
                           runs[n]);
      }
    }
  }

  // How a warp's sums are cut into strips of 16 by kStrip; adjacent lanes take consecutive runs of
  // a strip.
  template <bool kSwap, int kRun>
  struct Strips {
    static constexpr int kStrip = kAlong < 4 ? kAlong * 8 : 32;                 // wide rows
    static constexpr int kLine = kSwap ? 16 : kStrip, kRuns = kLine / kRun;     // in scratch memory
    static constexpr int kAll = 16 * kStrip / kRun, kTimes = (kAll + 31) / 32;  // runs; of a lane
    static constexpr int kAcross = kAlong * 8 / kStrip, kCount = kHigh * kAcross;
    static_assert(kAlong * 8 % kStrip == 0 && (kSwap || kStrip == 32), "a warp has whole strips");
    static_assert(kWarps * 16 * kStrip * 4 <= kScratchBytes, "a strip of each warp fits");
    static_assert(kLine % kRun == 0 && kRun % 4 == 0, "lines are whole runs");
    // Calls f(place, line, its first element, n) for the lane's runs of a strip.
    template <class F>
    static MACO_FN void each(const WarpTile& tile, int strip, F f) {
      MACO_UNROLL
      for (int n = 0; n < kTimes; ++n) {
        const int at = n * 32 + tile.lane, line = at / kRuns, first = at % kRuns * kRun;
        if (kAll % 32 != 0 && at >= kAll) break;
        f(RunPlace{tile.first_tall() + (kSwap ? first : line),
                   tile.first_wide() + (kSwap ? line : first), strip / kAcross * 16,
                   strip % kAcross * kStrip},
          line, first, n);
      }
    }
  };

  // As in LoneTile. Each warp reorders its sums through its share of `scratch`, strip by strip of
  // each sum. The operands of the next strip are loaded meanwhile.
  template <bool kSwap, int kRun, class F>
  MACO_FN void each_run(char* scratch, const F& to) const {
    using S = Strips<kSwap, kRun>;
    constexpr int kStrip = S::kStrip, kLine = S::kLine;
    float* own = (float*)scratch + own_warp * 16 * kStrip;
    // Where element `at` of a line lies: groups of four are swizzled, so that writing and reading
    // have as few bank conflicts as possible.
    const auto place = [&](int line, int at) {
      return line * kLine + (at ^ (kSwap ? line >> 1 & 3 : line & 7) << 2);
    };
    using Fetched = typename F::template Fetched<kRun>;
    const auto fetch = [&](int strip, Fetched(&fetched)[S::kTimes]) {
      S::each(*this, strip, [&](const RunPlace& at, int, int, int n) {
        to.template fetch<kRun>(at, fetched[n]);
      });
    };
    const auto put = [&](int sum, int i, int j) {
      // In a fragment, lane l has (l / 4, l % 4 * 2), the next element along, and both 8 rows down.
      const int r = lane >> 2, c = (lane & 3) * 2;
      MACO_UNROLL
      for (int q = 0; q < kStrip / 8; ++q) {
        MACO_UNROLL
        for (int e = 0; e < 4; e += 2) {
          const float first = sums[sum][i][j + q][e], second = sums[sum][i][j + q][e + 1];
          const int down = r + e / 2 * 8, along = q * 8 + c;
          if constexpr (kSwap) {
            own[place(along, down)] = first;
            own[place(along + 1, down)] = second;
          } else {
            shared_store8(own + place(down, along), first, second);
          }
        }
      }
    };
    Fetched fetched[2][S::kTimes];
    fetch(0, fetched[0]);
    MACO_UNROLL
    for (int strip = 0; strip < S::kCount; ++strip) {
      float runs[S::kTimes][kSums][kRun];
      MACO_UNROLL
      for (int sum = 0; sum < kSums; ++sum) {
        warp_sync();
        put(sum, strip / S::kAcross, strip % S::kAcross * (kStrip / 8));
        warp_sync();
        if (sum == 0 && strip + 1 < S::kCount) fetch(strip + 1, fetched[(strip + 1) % 2]);
        S::each(*this, strip, [&](const RunPlace& at, int line, int first, int n) {
          MACO_UNROLL
          for (int e = 0; e < kRun; e += 4) {
            const auto v = *(const Vec<float, 4>*)(own + place(line, first + e));
            MACO_UNROLL
            for (int x = 0; x < 4; ++x) runs[n][sum][e + x] = v.v[x];
          }
          if (sum == kSums - 1) to.template store<kRun>(at, runs[n], fetched[strip % 2][n]);
        });
      }
    }
  }
};

template <class T, int kTall, int kWide, bool kTallAcross, bool kWideAcross, bool kGroups,
          int kSums = 1, bool kTogether = false>
using TensorTile = typename Either<
    (kWarpLanes == 1),
    LoneTile<T, kTall, kWide, kTallAcross, kWideAcross, kGroups, kSums, kTogether>,
    WarpTile<T, kTall, kWide, kTallAcross, kWideAcross, kGroups, kSums, kTogether>>::type;

}  // namespace maco
