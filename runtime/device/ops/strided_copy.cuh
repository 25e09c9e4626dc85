// strided_copy.cuh: moves a box of elements: y[out_offset + sum of i * out] = x[in_offset + sum of
// i * in] over four axes.
//
// C: X, Y; extents rows, E1, E2, E3; S3: what x has of axis 3, beyond which y gets zeros; B0..B3 a
//    tile; strides in0..in3, out0..out3; offsets in_offset * in_unit, out_offset * out_unit; V
//    elements at once along axis 3. turned: the axis along which x lies in line where that isn't
//    axis 3, VT elements at once; -1: it is, or there is none, and where VT > V, y lies so that VT
//    can be stored at once, but x doesn't.
// Operands: x, y, which do not overlap.

namespace maco {
namespace ops {

template <class C, int V = (int)C::V>
struct StridedTile {
  i64 lo[4];
  u32 vectors;  // of whole blocks of axes 1 to 3; those that reach beyond an extent are skipped

  MACO_FN StridedTile(const Context& ctx, u32 tile) {
    constexpr u32 T1 = (C::E1 + C::B1 - 1) / C::B1, T2 = (C::E2 + C::B2 - 1) / C::B2,
                  T3 = (C::E3 + C::B3 - 1) / C::B3;
    lo[3] = tile % T3 * C::B3;
    lo[2] = tile / T3 % T2 * C::B2;
    lo[1] = tile / (T3 * T2) % T1 * C::B1;
    lo[0] = tile / (T3 * T2 * T1) * C::B0;
    const i64 left = C::rows::get(ctx) - lo[0];
    const i64 rows = left < C::B0 ? left : C::B0;
    vectors = rows <= 0 ? 0 : (u32)(rows * (C::B1 * C::B2 * (C::B3 / V)));
  }
  // Finds where vector i begins on both sides, and how many elements x has from there on. Returns
  // false if the vector lies beyond an extent.
  MACO_FN bool locate(u32 i, i64& in, i64& out, i64& given) const {
    constexpr u32 W = C::B3 / V;
    const i64 i3 = lo[3] + i % W * V;
    const u32 r = i / W;
    const i64 i2 = lo[2] + r % (u32)C::B2;
    const i64 i1 = lo[1] + r / (u32)C::B2 % (u32)C::B1;
    const i64 i0 = lo[0] + r / (u32)(C::B2 * C::B1);
    in = i0 * C::in0 + i1 * C::in1 + i2 * C::in2 + i3 * C::in3;
    out = i0 * C::out0 + i1 * C::out1 + i2 * C::out2 + i3 * C::out3;
    given = C::S3 - i3;
    return (C::E1 % C::B1 == 0 || i1 < C::E1) && (C::E2 % C::B2 == 0 || i2 < C::E2) &&
           (C::E3 % C::B3 == 0 || i3 < C::E3);
  }
};

// Copies VT elements of y at once, from a run of x that begins anywhere: the words that contain the
// run are loaded and shifted. Elements at a row's end, behind which x may have no word, are copied
// one by one. If one thread runs the task, so are all elements at either end of the tile, as others
// may be writing in their words.
template <class C>
MACO_FN void copy_shifted(const Context& ctx, const typename C::X* x, typename C::X* y, u32 tile) {
  using X = typename C::X;
  constexpr int V = (int)C::VT, kWords = V * (int)sizeof(X) / 4, U = 4;
  constexpr i64 kBehind = 4 / (i64)sizeof(X) - 1;  // elements that the last word may have besides
  static_assert(V * (int)sizeof(X) == 16, "a vector is as wide as stores are");
  const StridedTile<C, V> t(ctx, tile);
  for (u32 i = (u32)consumer_thread(); i < t.vectors; i += U * kConsumers) {
    u32 words[U][kWords + 1] = {}, shift[U];
    i64 in[U], out[U], given[U];  // given: elements that x has from there on in its row
    bool there[U], whole[U];
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      const u32 n = i + (u32)(u * kConsumers);
      there[u] = n < t.vectors && t.locate(n, in[u], out[u], given[u]);
      whole[u] = there[u] && given[u] >= V + kBehind;
      if constexpr (kWarpLanes == 1) {
        const i64 i3 = C::S3 - given[u] - t.lo[3];
        whole[u] = whole[u] && i3 >= kBehind && C::B3 - i3 >= V + kBehind;
      }
      const u64 from = (u64)(x + in[u]);
      shift[u] = (u32)(from & 3) * 8;
      if (!whole[u]) continue;
      const u32* const word = (const u32*)(from & ~(u64)3);
      MACO_UNROLL
      for (int w = 0; w < kWords; ++w) words[u][w] = gload(word + w);
      if (shift[u] != 0) words[u][kWords] = gload(word + kWords);
    }
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      if (!there[u]) continue;
      Vec<X, V> v = {};
      if (whole[u]) {
        Vec<u32, kWords> shifted;
        MACO_UNROLL
        for (int w = 0; w < kWords; ++w)
          shifted.v[w] = (u32)(((u64)words[u][w + 1] << 32 | words[u][w]) >> shift[u]);
        v = bits_as<Vec<X, V>>(shifted);
      } else {
        MACO_UNROLL
        for (int e = 0; e < V; ++e)
          if (e < given[u]) v.v[e] = gload(x + in[u] + e);
      }
      gstore_vec<V>(y + out[u], v);
    }
  }
}

// A transposition. Blocks of the two axes that are contiguous on one side each go through the
// scratch memory, so that both sides are read and written contiguously. A thread loads the next
// blocks' elements while it stores this block's.
//
// A block in the scratch memory is kLines lines of 128 bytes. Each line has the elements of one
// place along x's axis, contiguous along axis 3; if B3 is short, a line has kSubs such places,
// kLines apart. The order of 16-byte chunks differs among the eight lines to which a warp writes at
// once, so that the writes use different banks.
template <class C>
struct TurnedCopy {
  using X = typename C::X;
  using Y = typename C::Y;
  static constexpr int kTurned = (int)C::turned, kP = kTurned == 0 ? 1 : 0,
                       kQ = kTurned == 2 ? 1 : 2;
  static constexpr int kLines = 64, kWords = 32;        // of a line
  static constexpr int kTogether = 4 / (int)sizeof(Y);  // elements of axis 3 in a word
  static constexpr int kOwn = (int)most(4, power_above((C::B3 + kTogether - 1) / kTogether));
  static constexpr int kSubs = kWords / kOwn, kSide = kLines * kSubs;
  // A thread's part of a block: kTogether elements along axis 3, kRun along x's axis, VT at once.
  static constexpr int kRun = 8, kAcross = kLines / kRun, kUnits = kWords * kAcross,
                       kEach = (kUnits + kConsumers - 1) / kConsumers;
  static constexpr int kVT = (int)C::VT, kPieces = kRun / kVT;
  static constexpr int kRegisters =
      kEach * kTogether * kPieces * (int)most(1, kVT*(int)sizeof(X) / 4);
  static constexpr int kAhead = (int)least(6, most(1, 48 / kRegisters));  // blocks
  static_assert(kOwn <= kWords && C::VT <= kRun, "a line has the elements of axis 3");
  static_assert(2 * kLines * kWords * 4 <= kScratchBytes, "the scratch memory has two blocks");

  static MACO_FN constexpr i64 block(int axis) {
    return axis == 0 ? C::B0 : axis == 1 ? C::B1 : axis == 2 ? C::B2 : C::B3;
  }
  static MACO_FN constexpr i64 in(int axis) {
    return axis == 0 ? C::in0 : axis == 1 ? C::in1 : axis == 2 ? C::in2 : C::in3;
  }
  static MACO_FN constexpr i64 out(int axis) {
    return axis == 0 ? C::out0 : axis == 1 ? C::out1 : axis == 2 ? C::out2 : C::out3;
  }

  Context& ctx;
  const X* x;
  Y* y;
  int wide, high, given;  // of the tile: along x's axis, along axis 3, and of that what x has
  int ps, qs;             // along the other two axes

  // Where a block begins: on the other two axes, and along x's axis.
  struct Place {
    int p = 0, q = 0, at = 0;
    MACO_FN void next(const TurnedCopy& copy) {
      if ((at += kSide) < copy.wide) return;
      at = 0;
      if (++q < copy.qs) return;
      q = 0;
      ++p;
    }
  };
  // Unit n of a block: where its first run begins along x's axis, and its word of a line.
  struct Unit {
    int run, sub, word;
    MACO_FN explicit Unit(int n)
        : run(n % kAcross), sub(n / kAcross / kOwn), word(n / kAcross % kOwn) {}
    // The word for a column's line, which is in the run's eighth of the lines.
    MACO_FN int at(int line) const { return line * kWords + place(sub * kOwn + word, run); }
  };
  static MACO_FN int place(int word, int eighth) { return word ^ (eighth % 8 * 4); }
  static MACO_FN int eighth(int line) { return line / kVT % kAcross; }
  struct Units {
    HeldVec<X, kVT> v[kEach][kTogether][kPieces];
  };
  // Element e of each of a unit's rows, combined in a word.
  static MACO_FN u32 word_of(const Units& units, int k, int i, int e) {
    constexpr int kSize = (int)sizeof(X);
    if constexpr (is_same<X, Y> && !is_same<HeldVec<X, kVT>, Vec<X, kVT>>) {
      u32 word = 0;
      MACO_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        const u32 held = units.v[k][t][i].v[e * kSize / 4] >> (e * kSize % 4 * 8);
        const u32 mask = kSize == 4 ? ~0u : (1u << (kSize * 8 % 32)) - 1;
        word |= (held & mask) << (t * kSize * 8);
      }
      return word;
    } else {
      Vec<Y, kTogether> word;
      MACO_UNROLL
      for (int t = 0; t < kTogether; ++t)
        word.v[t] = convert<Y>(bits_as<Vec<X, kVT>>(units.v[k][t][i]).v[e]);
      return bits_as<u32>(word);
    }
  }

  MACO_FN void load(const Place& s, Units& units) const {
    const X* const from = x + s.p * in(kP) + s.q * in(kQ) + s.at;
    const int left = wide - s.at;
    MACO_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const Unit unit(consumer_thread() + k * kConsumers);
      MACO_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        const int row = unit.word * kTogether + t;
        MACO_UNROLL
        for (int i = 0; i < kPieces; ++i) {
          const int column = unit.sub * kLines + (i * kAcross + unit.run) * kVT;
          units.v[k][t][i] = {};
          if (row < given && column < left)
            units.v[k][t][i] = gload_held<kVT>(from + row * in(3) + column);
        }
      }
    }
  }
  // Stores a block; odd and even blocks use different halves of the scratch memory.
  MACO_FN void store(const Place& s, const Units& units, int odd) const {
    u32* const words = (u32*)ctx.scratch() + odd * (kLines * kWords);
    MACO_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int n = consumer_thread() + k * kConsumers;
      if (kUnits % kConsumers != 0 && n >= kUnits) break;
      const Unit unit(n);
      MACO_UNROLL
      for (int i = 0; i < kPieces; ++i) {
        MACO_UNROLL
        for (int e = 0; e < kVT; ++e)
          words[unit.at((i * kAcross + unit.run) * kVT + e)] = word_of(units, k, i, e);
      }
    }
    cta_sync();  // also means that the previous block has been read
    constexpr int V = (int)C::V, kRow = (int)C::B3 / V;
    Y* const to = y + s.p * out(kP) + s.q * out(kQ) + s.at * out(kTurned);
    for (int n = consumer_thread(); n < kSide * kRow; n += kConsumers) {
      const int column = n / kRow, row = n % kRow * V;
      if (s.at + column >= wide || row >= high) continue;
      const int line = column % kLines, word = column / kLines * kOwn + row / kTogether;
      const Y* const from = (const Y*)(words + line * kWords + place(word, eighth(line)));
      gstore_vec<V>(to + column * out(kTurned) + row, shared_raw<V>(from + row % kTogether));
    }
  }
  MACO_FN void run() const {
    const int all = ps * qs * ((wide + kSide - 1) / kSide);
    Units ahead[kAhead];
    Place now, then;
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (k < all) load(then, ahead[k]);
      then.next(*this);
    }
    for (int n = 0; n < all; n += kAhead) {
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (n + k >= all) break;
        store(now, ahead[k], (n + k) % 2);
        now.next(*this);
        if (n + k + kAhead < all) load(then, ahead[k]);
        then.next(*this);
      }
    }
  }
};

template <class C>
MACO_FN void copy_turned(Context& ctx, const typename C::X* x, typename C::Y* y, u32 tile) {
  using Turned = TurnedCopy<C>;
  const StridedTile<C> t(ctx, tile);
  const i64 extents[4] = {C::rows::get(ctx), C::E1, C::E2, C::E3};
  i64 count[4];
  MACO_UNROLL
  for (int i = 0; i < 4; ++i) {
    count[i] = least(Turned::block(i), extents[i] - t.lo[i]);
    if (count[i] <= 0) return;
    x += t.lo[i] * Turned::in(i);
    y += t.lo[i] * Turned::out(i);
  }
  Turned{ctx,
         x,
         y,
         (int)count[Turned::kTurned],
         (int)count[3],
         (int)least(count[3], C::S3 - t.lo[3]),
         (int)count[Turned::kP],
         (int)count[Turned::kQ]}
      .run();
}

// U vectors of a thread, kConsumers apart.
template <class C, int U>
struct StridedBatch {
  using X = typename C::X;
  Elements<X, (int)C::V, true> v[U];
  i64 out[U];  // below 0: no vector

  MACO_FN void load(const X* x, const StridedTile<C>& t, u32 i) {
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      const u32 n = i + (u32)(u * kConsumers);
      i64 in, given;
      v[u] = {};
      if (n >= t.vectors || !t.locate(n, in, out[u], given)) {
        out[u] = -1;
      } else if (C::S3 == C::E3 || given > 0) {
        v[u].load(x + in);
      }
    }
  }
  MACO_FN void store(typename C::Y* y) const {
    MACO_UNROLL
    for (int u = 0; u < U; ++u)
      if (out[u] >= 0) convert<typename C::Y>(v[u]).store(y + out[u]);
  }
};
template <class C>
MACO_FN void copy_vectors(const Context& ctx, const typename C::X* x, typename C::Y* y, u32 tile) {
  constexpr i64 kBytes = C::V * (i64)sizeof(typename C::X);
  // Vectors of a thread.
  constexpr i64 kVectors = (C::B0 * C::B1 * C::B2 * (C::B3 / C::V) + kConsumers - 1) / kConsumers;
  constexpr int U = (int)least(kVectors, kBytes <= 4 ? 16 : 8 / most(1, kBytes / 16));
  using Batch = StridedBatch<C, U>;
  const StridedTile<C> t(ctx, tile);
  each_ahead<Batch, (kVectors + U - 1) / U>((u32)consumer_thread(), t.vectors,
                                            (u32)(U * kConsumers),
                                            [&](Batch& batch, u32 i) { batch.load(x, t, i); },
                                            [&](const Batch& batch, u32) { batch.store(y); });
}

template <class C>
MACO_OP void strided_copy(Context& ctx, Args args, u32 tile) {
  const auto* x = args.ptr<typename C::X>(0) + C::in_offset::get(ctx) * C::in_unit;
  auto* y = args.ptr<typename C::Y>(1) + C::out_offset::get(ctx) * C::out_unit;
  if constexpr (C::turned >= 0) {
    copy_turned<C>(ctx, x, y, tile);
  } else if constexpr (C::VT > C::V) {
    copy_shifted<C>(ctx, x, y, tile);
  } else {
    copy_vectors<C>(ctx, x, y, tile);
  }
}

}  // namespace ops
}  // namespace maco
