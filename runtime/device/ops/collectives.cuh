// collectives.cuh: a tile to peers' slots (put), the reduction of what arrived (combine), an
// arrived tile to a tensor (take), zeros to a tile of a tensor (clear).
//
// C: W world; T tiles of a block; cols, rows of a block; BR x BC a tile; across tiles a row of
// tiles; stride elements of a tile in a slot row;
//    mode, peer: which peer; blocked: the tensor's rows begin at the
//    peer's index times rows, own_blocked:
//    at this rank's; slot_div: tile t lies at t / slot_div in its slot row; source_rows: a slot row
//    for each source; packets: a flag in every 8 bytes.
// Operands: put (x, slots); combine (x, slots, y[, slots of the result]); take (slots or x, y);
//    clear (y).

namespace maco {
namespace ops {

// The rank at the other end of tile index t: all others; rank + 1 + t / T, modulo W; t % W; `peer`;
// rank + `peer`, modulo W.
enum class PeerMode : u8 { others, each, owner, fixed, shift };
enum class Reduction : u8 { sum, avg, max, min };

template <class C>
struct TileBox {
  i64 r0, c0, nr, nc, at;
  // Tile `t` of a block: its box cut to the actual rows, and its place in a slot row.
  MACO_FN TileBox(const Context& ctx, u32 t) {
    const i64 rows = C::rows::get(ctx);
    r0 = i64(t) / C::across * C::BR;
    c0 = i64(t) % C::across * C::BC;
    nr = rows - r0 < C::BR ? rows - r0 : C::BR;
    if (nr < 0) nr = 0;
    nc = C::cols - c0 < C::BC ? C::cols - c0 : C::BC;
    at = i64(t) / C::slot_div * C::stride;
  }
  MACO_FN i64 count() const { return nr * nc; }
  // Offset in the tensor of element e of the tile, in row-major order of the box.
  MACO_FN i64 element(i64 e) const { return (r0 + e / nc) * C::cols + c0 + e % nc; }
};

template <class C>
MACO_FN constexpr i64 slot_row_elements() {
  return (C::T + C::slot_div - 1) / C::slot_div * C::stride;
}

// The rank at the other end of tile index `tile` (a rank-relative mode needs this rank).
template <class C>
MACO_FN int peer_of(const Context& ctx, u32 tile) {
  if (C::mode == PeerMode::each) return int((ctx.rank() + 1 + tile / C::T) % C::W);
  if (C::mode == PeerMode::owner) return int(tile % C::W);
  if (C::mode == PeerMode::shift) return int((ctx.rank() + C::peer) % C::W);
  return int(C::peer);
}
template <class C>
MACO_FN u32 tile_of(u32 tile) {
  return C::mode == PeerMode::each ? u32(tile % C::T) : tile;
}

// Packets: kCount elements of T in the 4 bytes of payload.
template <class T>
struct PacketOf {
  static constexpr int kCount = 4 / int(sizeof(T));
  union Bits {
    u32 word;
    T v[kCount];
    MACO_FN Bits() : word(0) {}
  };
};

// Packets [0, packets of the box) of row `row` of a packet slot whose payload is of type T.
template <class C, class T>
MACO_FN u64* packet_slot(T* slots, i64 row, i64 at) {
  return reinterpret_cast<u64*>(slots) + (row * slot_row_elements<C>() + at) / PacketOf<T>::kCount;
}

// Elements that one access moves: 16 bytes' worth where every tile and row begins on such a
// boundary, else one.
template <class C, class T>
MACO_FN constexpr int tile_vector() {
  return (C::cols * i64(sizeof(T)) % 16 == 0 && C::BC * i64(sizeof(T)) % 16 == 0)
             ? 16 / int(sizeof(T))
             : 1;
}

template <class C>
MACO_OP void put(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const int first = C::mode == PeerMode::others ? ctx.rank() + 1 : peer_of<C>(ctx, tile);
  const int peers = C::mode == PeerMode::others ? int(C::W) - 1 : 1;
  const X* x = args.template ptr<X>(0);
  if (C::blocked) x += i64(first) * C::rows::get(ctx) * C::cols;
  const i64 row = C::source_rows ? ctx.rank() : 0;
  if (C::packets) {
    constexpr int kCount = PacketOf<X>::kCount;
    const i64 n = (box.count() + kCount - 1) / kCount;
    const u32 flag = ctx.sent_flag + args.use(1);
    for (i64 i = consumer_thread(); i < n; i += kConsumers) {
      typename PacketOf<X>::Bits bits;
      for (int k = 0; k < kCount; ++k)
        if (i * kCount + k < box.count()) bits.v[k] = gload(x + box.element(i * kCount + k));
      for (int p = 0; p < peers; ++p) {
        const int to = (first + p) % int(C::W);
        packet_store(packet_slot<C>(args.template peer<X>(1, to), row, box.at) + i, bits.word,
                     flag);
      }
    }
    return;
  }
  constexpr int kVec = tile_vector<C, X>();
  for (i64 i = consumer_thread(); i < box.count() / kVec; i += kConsumers) {
    const auto v = gload_vec<kVec>(x + box.element(i * kVec));
    for (int p = 0; p < peers; ++p) {
      const int to = (first + p) % int(C::W);
      peer_store_vec<kVec>(
          args.template peer<X>(1, to) + row * slot_row_elements<C>() + box.at + i * kVec, v);
    }
  }
}

// Sums in f32 (i32 in i32) in rank order, rounds once.
template <class C, class A>
MACO_FN A reduce_step(A a, A b) {
  if (C::reduce == Reduction::max) return fn::maximum(a, b);
  if (C::reduce == Reduction::min) return fn::minimum(a, b);
  return fn::add(a, b);
}
template <class C>
MACO_FN float reduce_end(float a) {
  return C::reduce == Reduction::avg ? fdiv(a, float(C::W)) : a;
}
template <class C>
MACO_FN i32 reduce_end(i32 a) {
  return a;
}

template <class C>
MACO_OP void combine(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using A = AccOf<X>;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const X* x = args.template ptr<X>(0);
  if (C::own_blocked) x += i64(ctx.rank()) * C::rows::get(ctx) * C::cols;
  X* slots = args.template ptr<X>(1);
  Y* y = args.template ptr<Y>(2);
  constexpr int kCount = C::packets ? PacketOf<X>::kCount : tile_vector<C, X>();
  const i64 n = (box.count() + kCount - 1) / kCount;
  const u32 flag = C::packets ? ctx.first_flag + args.use(1) : 0;
  const u32 sent_flag = C::forward_packets ? ctx.sent_flag + args.use(3) : 0;
  for (i64 i = consumer_thread(); i < n; i += kConsumers) {
    A sum[kCount] = {};
    X own[kCount] = {};
    X arrived[int(C::W)][kCount] = {};
    if constexpr (C::packets) {
      MACO_UNROLL
      for (int s = 0; s < int(C::W); ++s) {
        if (s == ctx.rank()) continue;
        typename PacketOf<X>::Bits bits;
        if (!poll_packet(ctx, packet_slot<C>(slots, s, box.at) + i, flag, bits.word, 1, s)) return;
        for (int k = 0; k < kCount; ++k) arrived[s][k] = bits.v[k];
      }
    } else {
      MACO_UNROLL
      for (int s = 0; s < int(C::W); ++s) {
        if (s == ctx.rank()) continue;
        const auto v = gload_vec<kCount>(slots + s * slot_row_elements<C>() + box.at + i * kCount);
        for (int k = 0; k < kCount; ++k) arrived[s][k] = v.v[k];
      }
    }
    for (int k = 0; k < kCount; ++k)
      if (i * kCount + k < box.count()) own[k] = gload(x + box.element(i * kCount + k));
    MACO_UNROLL
    for (int s = 0; s < int(C::W); ++s)
      for (int k = 0; k < kCount; ++k) {
        const A v = to_acc(s == ctx.rank() ? own[k] : arrived[s][k]);
        sum[k] = s == 0 ? v : reduce_step<C>(sum[k], v);
      }
    Y result[kCount];
    for (int k = 0; k < kCount; ++k) result[k] = from_acc<Y>(reduce_end<C>(sum[k]));
    for (int k = 0; k < kCount; ++k)
      if (i * kCount + k < box.count()) gstore(y + box.element(i * kCount + k), result[k]);
    if constexpr (C::forward && !C::forward_packets) {
      for (int p = 1; p < int(C::W); ++p) {
        const int to = (ctx.rank() + p) % int(C::W);
        Y* out = args.template peer<Y>(3, to) + i64(tile) * C::stride + i * kCount;
        for (int k = 0; k < kCount; ++k)
          if (i * kCount + k < box.count()) peer_store(out + k, result[k]);
      }
    }
    if constexpr (C::forward && C::forward_packets) {
      // Results travel in packets of their own type; X and Y have the same number of elements a
      // packet here.
      static_assert(PacketOf<X>::kCount == PacketOf<Y>::kCount, "packets of the sum");
      typename PacketOf<Y>::Bits bits;
      for (int k = 0; k < kCount; ++k)
        if (i * kCount + k < box.count()) bits.v[k] = result[k];
      for (int p = 1; p < int(C::W); ++p) {
        const int to = (ctx.rank() + p) % int(C::W);
        u64* out = reinterpret_cast<u64*>(args.template peer<Y>(3, to)) +
                   i64(tile) * C::stride / kCount + i;
        packet_store(out, bits.word, sent_flag);
      }
    }
  }
}

template <class C>
MACO_OP void take(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const int source = C::own ? ctx.rank() : peer_of<C>(ctx, tile);
  const i64 block = C::rows::get(ctx) * C::cols;
  X* from = args.template ptr<X>(0);
  Y* y = args.template ptr<Y>(1);
  if (C::blocked) y += source * block;
  if constexpr (C::own) {
    if (C::own_blocked) from += source * block;
    for (i64 e = consumer_thread(); e < box.count(); e += kConsumers) {
      const i64 at = box.element(e);
      gstore(y + at, convert<Y>(gload(from + at)));
    }
    return;
  }
  const i64 row = C::source_rows ? source : 0;
  if constexpr (C::packets) {
    constexpr int kCount = PacketOf<X>::kCount;
    const i64 n = (box.count() + kCount - 1) / kCount;
    const u32 flag = ctx.first_flag + args.use(0);
    for (i64 i = consumer_thread(); i < n; i += kConsumers) {
      typename PacketOf<X>::Bits bits;
      if (!poll_packet(ctx, packet_slot<C>(from, row, box.at) + i, flag, bits.word, 0, source))
        return;
      for (int k = 0; k < kCount; ++k)
        if (i * kCount + k < box.count())
          gstore(y + box.element(i * kCount + k), convert<Y>(bits.v[k]));
    }
  } else {
    constexpr int kVec = tile_vector<C, X>();
    const X* slot = from + row * slot_row_elements<C>() + box.at;
    for (i64 i = consumer_thread(); i < box.count() / kVec; i += kConsumers) {
      const auto v = gload_vec<kVec>(slot + i * kVec);
      for (int k = 0; k < kVec; ++k) gstore(y + box.element(i * kVec + k), convert<Y>(v.v[k]));
    }
  }
}

template <class C>
MACO_OP void clear(Context& ctx, Args args, u32 tile) {
  using Y = typename C::Y;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  Y* y = args.template ptr<Y>(0);
  for (i64 e = consumer_thread(); e < box.count(); e += kConsumers)
    gstore(y + box.element(e), from_acc<Y>(AccOf<Y>(0)));
}

template <class C>
MACO_OP void nothing(Context&, const Args&, u32) {}

}  // namespace ops
}  // namespace maco
