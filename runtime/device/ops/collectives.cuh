// collectives.cuh: what tasks of collectives have in common: the box of a tile and its units, the
// peer and its slots, packets, and the steps of a reduction. put.cuh, combine.cuh, take.cuh and
// hop.cuh are such tasks.
//
// C: W world; T tiles of a block; cols, rows of a block; BR x BC a tile; across tiles a row of
// tiles; stride elements of a tile in a slot row;
//    mode, peer: which peer; blocked: the tensor's rows begin at the
//    peer's index times rows, own_blocked:
//    at this rank's; slot_div: tile t lies at t / slot_div in its slot row; source_rows: a slot row
//    for each source; packets: a flag in every 8 bytes.
//
// A thread has several loads of 16 bytes in flight, or of the tiles' alignment if that is less; for
// packets it polls those of several sources at once. Loops are the same for all lanes of a warp.

namespace maco {
namespace ops {

// The rank at the other end of tile index t: all others; rank + 1 + t / T, modulo W; t % W; `peer`;
// rank + `peer`, modulo W; t / T.
enum class PeerMode : u8 { others, each, owner, fixed, shift, block };
enum class Reduction : u8 { sum, avg, max, min };

// Units of a tile that a thread moves at once, out of n: they are kConsumers apart. Unless all are
// known to exist, the last unit replaces those behind it, and isn't stored again.
template <bool kAll>
struct Units {
  u32 first, n;
  MACO_FN u32 at(int k) const {
    const u32 i = first + (u32)k * kConsumers;
    return kAll || i < n ? i : n - 1;
  }
  MACO_FN bool there(int k) const { return kAll || first + (u32)k * kConsumers < n; }
};
// Calls f.move(units), N units at once, until all n, at most kMost, have been moved or it returns
// false. All lanes of a warp go round equally often. (Not a lambda: NVRTC takes a lambda with an
// `auto` for the host's.)
template <int N, i64 kMost, class F>
MACO_FN void each_units(u32 n, const F& f) {
  const u32 lane = (u32)warp_lane();
  u32 first = (u32)warp() * kWarpLanes;
  // If a tile has fewer units, code for N would only take registers.
  if constexpr (kMost >= (N - 1) * kConsumers + kWarpLanes) {
    for (; first + (N - 1) * kConsumers + kWarpLanes <= n; first += N * kConsumers) {
      if (!f.move(Units<true>{first + lane, n})) return;
      if constexpr (kMost <= N * kConsumers) return;  // tells the compiler that the loop runs once
    }
  }
  if (first < n) f.move(Units<false>{first + lane, n});
}

// Whether the rows of all tiles have the same length. The compiler then knows it.
template <class C>
constexpr bool kSameWidth = C::cols % C::BC == 0;

template <class C>
struct TileBox {
  // Distance between elements of a tile.
  using Offset = typename Either<(C::BR * C::cols < (i64(1) << 31)), u32, i64>::type;
  i64 origin;  // of the tile in the tensor
  i64 at;      // its place in a slot row
  u32 nr, nc;
  // Tile `t` of a block: its box cut to the actual rows.
  MACO_FN TileBox(const Context& ctx, u32 t) {
    const i64 rows = C::rows::get(ctx);
    const i64 r0 = i64(t) / C::across * C::BR, c0 = i64(t) % C::across * C::BC;
    nr = (u32)(rows - r0 >= C::BR ? C::BR : rows > r0 ? rows - r0 : 0);
    nc = (u32)(kSameWidth<C> || C::cols - c0 >= C::BC ? C::BC : C::cols - c0);
    origin = r0 * C::cols + c0;
    at = i64(t) / C::slot_div * C::stride;
  }
  MACO_FN u32 count() const { return nr * nc; }
  // From the origin to element e of the tile, in row-major order of the box.
  MACO_FN Offset element(u32 e) const {
    if constexpr (C::BC == C::cols) return e;
    const u32 width = kSameWidth<C> ? (u32)C::BC : nc;
    return Offset(e / width) * (Offset)C::cols + e % width;
  }
  // From the origin to the first of the V elements of unit k, which lie in one row.
  template <int V, bool kAll>
  MACO_FN Offset unit(const Units<kAll>& units, int k) const {
    constexpr i64 step = i64(kConsumers) * V;
    if constexpr (kAll && kSameWidth<C> && step % C::BC == 0)
      return element(units.first * V) + (Offset)k * (Offset)(step / C::BC * C::cols);
    return element(units.at(k) * V);
  }
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
  if (C::mode == PeerMode::block) return int(tile / C::T);
  if (C::mode == PeerMode::shift) return int((ctx.rank() + C::peer) % C::W);
  return int(C::peer);
}
template <class C>
MACO_FN u32 tile_of(u32 tile) {
  return C::mode == PeerMode::each || C::mode == PeerMode::block ? u32(tile % C::T) : tile;
}

// How many elements one access moves: they must begin at a multiple of that number in every tile
// and row, and have at most 16 bytes of T.
template <class C, class T>
MACO_FN constexpr int tile_vector() {
  int v = 1;
  while (2 * v * (int)sizeof(T) <= 16 && C::cols % (2 * v) == 0 && C::BC % (2 * v) == 0) v *= 2;
  return v;
}

// How many loads a thread has in flight.
constexpr int kLoadsAhead = 8;

// V elements in registers, packed in words if they fill some: the compiler would unpack narrower
// elements.
template <class T, int V>
struct Raw {
  static constexpr int kBytes = V * (int)sizeof(T), kWords = kBytes / 4;
  static constexpr bool kWhole = kBytes % 4 == 0;
  using Word = typename Either<kWhole, u32, T>::type;
  static constexpr int kCount = kWhole ? kWords : V;
  union {
    Vec<Word, kCount> words;
    T v[V];
  };
  MACO_FN Raw() : words{} {}
  // `p` is aligned to all of them.
  MACO_FN void load(const T* p) { words = gload_vec<kCount>((const Word*)p); }
  MACO_FN void store(T* p) const { gstore_vec<kCount>((Word*)p, words); }
  MACO_FN void send(T* p) const { peer_store_vec<kCount>((Word*)p, words); }
};

// Slot operand i on other ranks: an address is looked up when it is needed.
template <class T>
struct PeerSlots {
  i64 offset;
  // `own`: on this rank.
  MACO_FN PeerSlots(const char* own, int rank) : offset(own - Context::memory()->symmetric[rank]) {}
  MACO_FN PeerSlots(const Args& args, int i, int rank)
      : PeerSlots(args.template ptr<char>(i), rank) {}
  MACO_FN T* operator[](int rank) const {
    return (T*)(Context::memory()->symmetric[rank] + offset);
  }
};

// Packets of T: kCount elements in the 4 bytes of payload. kSide adjacent packets are a unit, which
// is loaded and stored at once. kSide is two if 8 bytes of payload lie together in the tensor.
template <class C, class T>
struct PacketUnit {
  static constexpr int kCount = 4 / int(sizeof(T));
  static constexpr int kSide = tile_vector<C, T>() * (int)sizeof(T) >= 8 ? 2 : 1;
  static constexpr int kElements = kSide * kCount;
  union Bits {
    u32 words[kSide];
    T v[kElements];
    MACO_FN Bits() : words{} {}
  };
  // Loads unit k of these, from the tile that begins at x. The tile's last unit may have fewer
  // elements.
  template <bool kAll>
  static MACO_FN Bits load(const T* x, const TileBox<C>& box, const Units<kAll>& units, int k) {
    Bits bits;
    if constexpr (kSide == 2) {
      const auto v = gload_vec<2>((const u32*)(x + box.template unit<kElements>(units, k)));
      bits.words[0] = v.v[0];
      bits.words[1] = v.v[1];
    } else {
      const u32 first = units.at(k) * kElements;
      for (u32 e = 0; e < kElements; ++e)
        if (first + e < box.count()) bits.v[e] = gload(x + box.element(first + e));
    }
    return bits;
  }
  // Unit i of the tile that begins at element `at` of a row of packet slots.
  static MACO_FN u64* place(T* slots, i64 row, i64 at, u32 i) {
    return reinterpret_cast<u64*>(slots) + (row * slot_row_elements<C>() + at) / kCount +
           i64(i) * kSide;
  }
  static MACO_FN void send(u64* to, const Bits& bits, u32 flag) {
    if constexpr (kSide == 2)
      packet_pair_store(to, bits.words[0], bits.words[1], flag);
    else
      packet_store(to, bits.words[0], flag);
  }
};
// How many elements a unit has, for tiles that travel as stores or in packets of X.
template <class C, class X>
MACO_FN constexpr int unit_elements() {
  return C::packets ? PacketUnit<C, X>::kElements : tile_vector<C, X>();
}
template <class C, class X>
MACO_FN u32 units_of(const TileBox<C>& box) {
  constexpr u32 v = (u32)unit_elements<C, X>();
  return (box.count() + v - 1) / v;
}
template <class C, class X>
MACO_FN constexpr i64 most_units() {
  return (C::BR * C::BC + unit_elements<C, X>() - 1) / unit_elements<C, X>();
}

// Stores V elements, which lie in one row and begin at a multiple of V, in accesses of at most 16
// bytes.
template <int V, class Y>
MACO_FN void store_row(Y* y, const Y (&v)[V]) {
  constexpr int kPart = V * (int)sizeof(Y) <= 16 ? V : 16 / (int)sizeof(Y);
  MACO_UNROLL
  for (int p = 0; p < V; p += kPart) {
    Raw<Y, kPart> part;
    MACO_UNROLL
    for (int e = 0; e < kPart; ++e) part.v[e] = v[p + e];
    part.send(y + p);
  }
}
// Stores unit k of these to the tile that begins at y.
template <class C, class X, int V, class Y, bool kAll>
MACO_FN void store_unit(Y* y, const TileBox<C>& box, const Units<kAll>& units, int k,
                        const Y (&v)[V]) {
  if (!units.there(k)) return;
  if constexpr (!C::packets || PacketUnit<C, X>::kSide == 2) {
    store_row(y + box.template unit<V>(units, k), v);
  } else {
    const u32 first = units.at(k) * V;
    for (u32 e = 0; e < V; ++e)
      if (first + e < box.count()) gstore(y + box.element(first + e), v[e]);
  }
}

// The same to packets.
template <class C, class X, int V, class Y, bool kAll>
MACO_FN void store_unit(const Sends<Y>& y, const TileBox<C>& box, const Units<kAll>& units, int k,
                        const Y (&v)[V]) {
  if (!units.there(k)) return;
  const u32 first = units.at(k) * V;
  MACO_UNROLL
  for (u32 e = 0; e < V; ++e)
    if (first + e < box.count()) gstore(y + box.element(first + e), v[e]);
}

// How many of at most `most` units a thread moves at once: no more than tiles have.
template <class C, class X>
MACO_FN constexpr int units_ahead(int most) {
  const i64 each = i64(unit_elements<C, X>()) * kConsumers;
  const i64 units = (C::BR * C::BC + each - 1) / each;
  return units < most ? (int)units : most < 1 ? 1 : most;
}

// Sends unit i of the sum to a peer's slot, whose tile begins at element `at`.
template <class C, int V, class Y>
MACO_FN void forward_unit(Y* slots, i64 at, const TileBox<C>& box, u32 i, const Y (&v)[V],
                          u32 flag) {
  if constexpr (C::forward_packets) {
    // A packet of the sum has as many elements as one of X.
    static_assert(sizeof(typename C::X) == sizeof(Y), "packets of the sum");
    using Unit = PacketUnit<C, Y>;
    typename Unit::Bits bits;
    MACO_UNROLL
    for (int e = 0; e < V; ++e) bits.v[e] = v[e];
    Unit::send(Unit::place(slots, 0, at, i), bits, flag);
  } else if constexpr (!C::packets || PacketUnit<C, typename C::X>::kSide == 2) {
    store_row(slots + at + i64(i) * V, v);
  } else {
    for (u32 e = 0; e < V; ++e)
      if (i * V + e < box.count()) peer_store(slots + at + i64(i) * V + e, v[e]);
  }
}

// Adds in f32 (i32 in i32) in rank order, and rounds once.
template <class C, class A>
MACO_FN A reduce_step(A a, A b) {
  if (C::reduce == Reduction::max) return fn::maximum(a, b);
  if (C::reduce == Reduction::min) return fn::minimum(a, b);
  return fn::add(a, b);
}
template <class C>
MACO_FN float reduce_end(float a) {
  if (C::reduce != Reduction::avg) return a;
  // By a power of two: gives the same bits.
  if ((C::W & (C::W - 1)) == 0) return fmul(a, 1.0f / float(C::W));
  return fdiv(a, float(C::W));
}
template <class C>
MACO_FN i32 reduce_end(i32 a) {
  return a;
}

template <class C>
MACO_OP void nothing(Context&, const Args&, u32) {}

}  // namespace ops
}  // namespace maco
