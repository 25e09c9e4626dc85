// thread_tile.cuh: multiplies tiles that lie in pages (tensor_cores.cuh) by ordinary arithmetic:
// each thread computes a block of the result in registers, over K in order.

namespace maco {

// A thread's rows of an operand's tile: kEach rows, where kLanes threads share kLanes * kEach rows.
// Along K adjacent threads have adjacent rows. Across K a line has elements of many rows, and each
// thread has up to four adjacent rows, which one load brings.
template <int kLanes, int kEach, bool kAcross>
struct ThreadRows {
  static constexpr int kSide = !kAcross ? 1 : kEach % 4 == 0 ? 4 : kEach % 2 == 0 ? 2 : 1;
  static constexpr int kAll = kLanes * kEach;
  // The thread's i-th row, among those that are shared.
  static MACO_FN int at(int lane, int i) { return (i / kSide * kLanes + lane) * kSide + i % kSide; }
};

// What a thread takes of a block: kStep elements of K of its rows at a time.
template <class T, int kRows, int kLanes, int kEach, bool kAcross>
struct ThreadOperand {
  using A = AccOf<T>;
  using Own = ThreadRows<kLanes, kEach, kAcross>;
  static constexpr int kStep = 4, kDepth = kBlockOf<T>, kOf = kChunkOf<T>;
  // first: the first shared row; lane: the thread's number among those that share the rows.
  const int first, lane;

  // The address of element k of this thread's i-th row; across K the next rows lie behind it.
  MACO_FN const T* at(const Block& block, const char* lines, int i, int k) const {
    int line, chunk, element;
    if constexpr (kAcross) {
      const int row = first + Own::at(lane, i);
      line = row / kDepth * kDepth + k;
      chunk = row % kDepth / kOf ^ k % kLineChunks;
      element = row % kOf;
    } else {
      // Rows 4 or 8 lines apart: swizzled() of the first row plus an offset.
      static_assert(kLanes % 4 == 0, "which adds to three bits of a line without a carry");
      const int more = i * kLanes;
      line = first + lane + more;
      chunk = k / kOf ^ (first + lane) % kLineChunks ^ more % kLineChunks;
      element = k % kOf;
    }
    if constexpr (kRows <= kPageLines) {
      return (const T*)(lines + line * kLineBytes + (chunk << 4)) + element;
    } else {
      const int own = block.line + line;
      return (const T*)(block.page(own) + own % kPageLines * kLineBytes + (chunk << 4)) + element;
    }
  }
  MACO_FN void load(A (&to)[kStep][kEach], const Block& block, const char* lines, int k) const {
    constexpr int kSide = Own::kSide;
    if constexpr (kAcross) {
      MACO_UNROLL
      for (int e = 0; e < kStep; ++e) {
        MACO_UNROLL
        for (int i = 0; i < kEach; i += kSide) {
          const auto v = shared_raw<kSide>(at(block, lines, i, k + e));
          MACO_UNROLL
          for (int q = 0; q < kSide; ++q) to[e][i + q] = to_acc(v.v[q]);
        }
      }
    } else {
      MACO_UNROLL
      for (int i = 0; i < kEach; ++i) {
        const auto v = shared_raw<kStep>(at(block, lines, i, k));
        MACO_UNROLL
        for (int e = 0; e < kStep; ++e) to[e][i] = to_acc(v.v[e]);
      }
    }
  }
};

// Multiplies kTall rows of one operand by kWide rows of another, summed over K. Eight warps share
// the tile, four along the tall rows by two, and 32 threads share a warp's part, four by eight: so
// as few different vectors of both operands as possible are read at a time.
template <class T, int kTall, int kWide, bool kTallAcross, bool kWideAcross>
struct ThreadTile {
  using A = AccOf<T>;
  static constexpr int kTallWarps = 4, kWideWarps = 2, kTallLanes = 4, kWideLanes = 8;
  static constexpr int kHigh = kTall / (kTallWarps * kTallLanes),
                       kAlong = kWide / (kWideWarps * kWideLanes);
  static_assert(kWarpLanes == 1 ||
                    (kTallWarps * kWideWarps == kWarps && kTallLanes * kWideLanes == kWarpLanes),
                "threads share the tile");
  static_assert(kTall % (kTallWarps * kTallLanes) == 0 && kWide % (kWideWarps * kWideLanes) == 0,
                "evenly");
  using Tall = ThreadOperand<T, kTall, kTallLanes, kHigh, kTallAcross>;
  using Wide = ThreadOperand<T, kWide, kWideLanes, kAlong, kWideAcross>;
  static constexpr int kStep = Tall::kStep;
  static constexpr bool kFinishes = false;
  // The longest run that a warp has contiguously (each_run).
  template <bool kSwap>
  static constexpr int kMostRun = kSwap ? Tall::Own::kAll : Wide::Own::kAll;

  A sums[kHigh][kAlong] = {};
  const Tall tall = {consumer_thread() / kWarpLanes % kTallWarps * Tall::Own::kAll,
                     consumer_thread() % kWarpLanes / kWideLanes};
  const Wide wide = {consumer_thread() / kWarpLanes / kTallWarps * Wide::Own::kAll,
                     consumer_thread() % kWideLanes};

  MACO_FN void begin() {}
  MACO_FN void commit() {}
  MACO_FN void wait() {}
  MACO_FN void multiply(const Block& a, const Block (&bs)[1]) {
    const Block& b = bs[0];
    const char *of_a = a.first_line(), *of_b = b.first_line();
    // Two steps at once: the second step's elements are loaded while the first step's are
    // multiplied.
    constexpr int kAtOnce = 2 * kStep;
    static_assert(kBlockOf<T> % kAtOnce == 0, "a block is whole steps");
    MACO_ROLLED
    for (int k = 0; k < kBlockOf<T>; k += kAtOnce) {
      MACO_UNROLL
      for (int s = 0; s < kAtOnce; s += kStep) {
        A x[kStep][kHigh], y[kStep][kAlong];
        tall.load(x, a, of_a, k + s);
        wide.load(y, b, of_b, k + s);
        MACO_UNROLL
        for (int e = 0; e < kStep; ++e) {
          MACO_UNROLL
          for (int i = 0; i < kHigh; ++i) {
            MACO_UNROLL
            for (int j = 0; j < kAlong; ++j) sums[i][j] = fn::mul_add(x[e][i], y[e][j], sums[i][j]);
          }
        }
      }
    }
  }

  // How a warp's sums are cut into strips with as many lines as the warp has lanes across them;
  // adjacent lanes take consecutive runs of a strip.
  template <bool kSwap, int kRun>
  struct Strips {
    static constexpr int kLines = kSwap ? kWideLanes : kTallLanes, kLine = kMostRun<kSwap>;
    static constexpr int kPitch = kLine + 32 / kLines;  // in scratch memory
    static constexpr int kCount = kSwap ? kAlong : kHigh, kRuns = kLine / kRun;
    static constexpr int kAll = kLines * kRuns, kTimes = (kAll + kWarpLanes - 1) / kWarpLanes;
    static_assert(kLine % kRun == 0 && kRun % 4 == 0, "lines are whole runs");
    static_assert(kWarps * kLines * kPitch * (int)sizeof(A) <= kScratchBytes,
                  "a strip of each warp fits");
    // Calls f(place, line, its first element, n) for the lane's runs of a strip.
    template <class F>
    static MACO_FN void each(const ThreadTile& tile, int strip, F f) {
      MACO_UNROLL
      for (int n = 0; n < kTimes; ++n) {
        const int at = n * kWarpLanes + consumer_thread() % kWarpLanes;
        const int line = at / kRuns, first = at % kRuns * kRun;
        if (kAll % kWarpLanes != 0 && at >= kAll) break;
        f(kSwap ? RunPlace{tile.tall.first + first, tile.wide.first + Wide::Own::at(line, strip), 0,
                           0}
                : RunPlace{tile.tall.first + Tall::Own::at(line, strip), tile.wide.first + first, 0,
                           0},
          line, first, n);
      }
    }
  };

  // Calls to.fetch(place, fetched), then to.store(place, runs of kRun sums, fetched), for all
  // places: along the tall rows if kSwap, else along the wide ones. Each warp reorders its sums
  // through its share of `scratch`.
  template <bool kSwap, int kRun, class F>
  MACO_FN void each_run(char* scratch, const F& to) const {
    using S = Strips<kSwap, kRun>;
    A* own = (A*)scratch + consumer_thread() / kWarpLanes * (S::kLines * S::kPitch);
    MACO_UNROLL
    for (int strip = 0; strip < S::kCount; ++strip) {
      typename F::template Fetched<kRun> fetched[S::kTimes];
      S::each(*this, strip, [&](const RunPlace& at, int, int, int n) {
        to.template fetch<kRun>(at, fetched[n]);
      });
      warp_sync();
      if constexpr (kSwap) {
        MACO_UNROLL
        for (int i = 0; i < kHigh; ++i)
          own[wide.lane * S::kPitch + Tall::Own::at(tall.lane, i)] = sums[i][strip];
      } else {
        MACO_UNROLL
        for (int j = 0; j < kAlong; ++j)
          own[tall.lane * S::kPitch + Wide::Own::at(wide.lane, j)] = sums[strip][j];
      }
      warp_sync();
      S::each(*this, strip, [&](const RunPlace& at, int line, int first, int n) {
        A runs[1][kRun];
        MACO_UNROLL
        for (int e = 0; e < kRun; e += 4) {
          const auto v = *(const Vec<A, 4>*)(own + line * S::kPitch + first + e);
          MACO_UNROLL
          for (int x = 0; x < 4; ++x) runs[0][e + x] = v.v[x];
        }
        to.template store<kRun>(at, runs, fetched[n]);
      });
    }
  }
};

}  // namespace maco
