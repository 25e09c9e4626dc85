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
  // Where vector i begins on both sides, and how many elements x has from there on; false if it
  // lies beyond an extent.
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

// VT elements of y at once, from a run of x that begins anywhere: the words that hold it are
// loaded, and shifted. Those at the end of a row, behind which x may have no word, come one by one;
// and where a thread stands for all those at either end of the tile, whose words hold what others
// may be writing.
template <class C>
MACO_FN void copy_shifted(const Context& ctx, const typename C::X* x, typename C::X* y, u32 tile) {
  using X = typename C::X;
  constexpr int V = (int)C::VT, kWords = V * (int)sizeof(X) / 4, U = 4;
  constexpr i64 kBehind = 4 / (i64)sizeof(X) - 1;  // elements that the last word may have besides
  static_assert(V * (int)sizeof(X) == 16, "a vector is as wide as stores are");
  const StridedTile<C, V> t(ctx, tile);
  for (u32 i = (u32)consumer_thread(); i < t.vectors; i += U * kConsumers) {
    u32 words[U][kWords + 1] = {}, shift[U];
    i64 in[U], out[U], given[U];  // how many elements x has from there on in its row
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

// A transposition: squares of the two axes that lie in line on one side each go through the
// scratch memory, so that both sides are read and written in line. A thread has the elements of the
// next two squares under way while it stores this one's.
template <class C>
struct TurnedCopy {
  using X = typename C::X;
  using Y = typename C::Y;
  static constexpr int kTurned = (int)C::turned, kP = kTurned == 0 ? 1 : 0,
                       kQ = kTurned == 2 ? 1 : 2;
  static constexpr int kSide = 64;  // of a square along the axis of x; along axis 3 it has B3
  static constexpr int kVT = (int)least(C::VT, kSide), kAcross = kSide / kVT;
  static constexpr int kVectors = (int)C::B3 * kAcross;  // of a square
  static constexpr int kEach = (kVectors + kConsumers - 1) / kConsumers;
  // An odd number of words from row to row: lanes that write down a column meet different banks.
  static constexpr int kPitch = (int)((C::B3 * (i64)sizeof(Y) + 3) / 4 | 1) * 4 / (int)sizeof(Y);
  static_assert(C::B3 <= kSide && kSide * kPitch * (int)sizeof(Y) <= kScratchBytes,
                "the scratch memory has a square");

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

  // Where square n begins: on the other two axes, and along x's.
  struct Place {
    int p, q, at;
    MACO_FN Place(int n, int squares, int qs)
        : p(n / squares / qs), q(n / squares % qs), at(n % squares * kSide) {}
  };

  // At most kEach vectors of a square.
  MACO_FN void load(const Place& s, Vec<X, kVT> (&v)[kEach]) const {
    const int at = s.at;
    const X* const from = x + s.p * in(kP) + s.q * in(kQ) + at;
    MACO_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int n = consumer_thread() + k * kConsumers, row = n / kAcross, i = n % kAcross * kVT;
      v[k] = {};
      if (row < given && at + i < wide) v[k] = gload_vec<kVT>(from + row * in(3) + i);
    }
  }
  MACO_FN void store(const Place& s, const Vec<X, kVT> (&v)[kEach]) const {
    const int at = s.at;
    Y* const square = (Y*)ctx.scratch();
    cta_sync();  // the one before has been read
    MACO_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int n = consumer_thread() + k * kConsumers, row = n / kAcross, i = n % kAcross * kVT;
      if (row >= C::B3) continue;
      MACO_UNROLL
      for (int e = 0; e < kVT; ++e) square[(i + e) * kPitch + row] = convert<Y>(v[k].v[e]);
    }
    cta_sync();
    constexpr int V = (int)C::V, kRow = (int)C::B3 / V;
    Y* const to = y + s.p * out(kP) + s.q * out(kQ) + at * out(kTurned);
    for (int n = consumer_thread(); n < kSide * kRow; n += kConsumers) {
      const int i = n / kRow, row = n % kRow * V;
      if (at + i >= wide || row >= high) continue;
      Vec<Y, V> u;
      MACO_UNROLL
      for (int e = 0; e < V; ++e) u.v[e] = square[i * kPitch + row + e];
      gstore_vec<V>(to + i * out(kTurned) + row, u);
    }
  }
  MACO_FN void run(i64 ps, i64 qs) const {
    const int squares = (wide + kSide - 1) / kSide, all = (int)(ps * qs) * squares;
    Vec<X, kVT> now[kEach], next[kEach], last[kEach];
    load({0, squares, (int)qs}, now);
    if (1 < all) load({1, squares, (int)qs}, next);
    for (int n = 0; n < all; ++n) {
      if (n + 2 < all) load({n + 2, squares, (int)qs}, last);
      store({n, squares, (int)qs}, now);
      MACO_UNROLL
      for (int k = 0; k < kEach; ++k) now[k] = next[k], next[k] = last[k];
    }
  }
};

template <class C>
MACO_FN void copy_turned(Context& ctx, const typename C::X* x, typename C::Y* y,
                         const StridedTile<C>& t) {
  using Turned = TurnedCopy<C>;
  const i64 extents[4] = {C::rows::get(ctx), C::E1, C::E2, C::E3};
  i64 count[4];
  MACO_UNROLL
  for (int i = 0; i < 4; ++i) {
    count[i] = least(Turned::block(i), extents[i] - t.lo[i]);
    if (count[i] <= 0) return;
    x += t.lo[i] * Turned::in(i);
    y += t.lo[i] * Turned::out(i);
  }
  Turned{
      ctx, x, y, (int)count[Turned::kTurned], (int)count[3], (int)least(count[3], C::S3 - t.lo[3])}
      .run(count[Turned::kP], count[Turned::kQ]);
}

template <class C>
MACO_OP void strided_copy(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  constexpr int V = (int)C::V, U = 8 / (int)most(1, V * (int)sizeof(X) / 32);
  const X* x = args.ptr<X>(0) + C::in_offset::get(ctx) * C::in_unit;
  Y* y = args.ptr<Y>(1) + C::out_offset::get(ctx) * C::out_unit;
  const StridedTile<C> t(ctx, tile);
  if constexpr (C::turned >= 0) return copy_turned<C>(ctx, x, y, t);
  if constexpr (C::turned < 0 && C::VT > C::V) return copy_shifted<C>(ctx, x, y, tile);
  for (u32 i = (u32)consumer_thread(); i < t.vectors; i += U * kConsumers) {
    Elements<X, V> v[U] = {};
    i64 in, out[U];
    bool there[U];
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      const u32 n = i + (u32)(u * kConsumers);
      i64 given;
      there[u] = n < t.vectors && t.locate(n, in, out[u], given);
      if (there[u] && (C::S3 == C::E3 || given > 0)) v[u].load(x + in);
    }
    MACO_UNROLL
    for (int u = 0; u < U; ++u)
      if (there[u]) convert<Y>(v[u]).store(y + out[u]);
  }
}

}  // namespace ops
}  // namespace maco
