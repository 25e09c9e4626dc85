// collectives.cuh: puts a tile into peers' slots (put), reduces what arrived (combine), copies an
// arrived tile to a tensor (take), or clears a tile of a tensor (clear).
//
// C: W world; T tiles of a block; cols, rows of a block; BR x BC a tile; across tiles a row of
// tiles; stride elements of a tile in a slot row;
//    mode, peer: which peer; blocked: the tensor's rows begin at the
//    peer's index times rows, own_blocked:
//    at this rank's; slot_div: tile t lies at t / slot_div in its slot row; source_rows: a slot row
//    for each source; packets: a flag in every 8 bytes.
// combine, S: what lies in its slots, which products may have sent in packets of f32.
// Operands: put (x, slots); combine (x, slots, y[, slots of the result]); combine_finished (x,
//    slots, y, then whatever C::finish reads); take (slots or x, y); clear (y).
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

// What a task of `put` works with.
template <class C>
struct Put {
  using X = typename C::X;
  using Unit = PacketUnit<C, X>;
  static constexpr int kAhead = units_ahead<C, X>(kLoadsAhead);
  const TileBox<C>& box;
  const X* x;  // where the tile begins
  PeerSlots<X> slots;
  int first, peers;  // ranks from `first` on
  i64 row;           // of slots
  u32 flag;

  template <bool kAll>
  MACO_FN bool move(Units<kAll> units) const {
    if constexpr (C::packets) {
      typename Unit::Bits bits[kAhead];
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) bits[k] = Unit::load(x, box, units, k);
      for (int p = 0; p < peers; ++p) {
        u64* to = Unit::place(slots[(first + p) % int(C::W)], row, box.at, units.first);
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k)
          if (units.there(k)) Unit::send(to + k * kConsumers * Unit::kSide, bits[k], flag);
      }
    } else {
      constexpr int V = tile_vector<C, X>();
      Raw<X, V> v[kAhead];
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) v[k].load(x + box.template unit<V>(units, k));
      for (int p = 0; p < peers; ++p) {
        X* to = slots[(first + p) % int(C::W)] + row * slot_row_elements<C>() + box.at +
                i64(units.first) * V;
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k)
          if (units.there(k)) v[k].send(to + k * kConsumers * V);
      }
    }
    return true;
  }
};

template <class C>
MACO_OP void put(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const int rank = ctx.rank();
  constexpr bool kOthers = C::mode == PeerMode::others;
  const int first = kOthers ? rank + 1 : peer_of<C>(ctx, tile);
  const i64 block = C::blocked ? i64(first) * C::rows::get(ctx) * C::cols : 0;
  const Put<C> put{box,
                   args.template ptr<X>(0) + block + box.origin,
                   PeerSlots<X>(args, 1, rank),
                   first,
                   kOthers ? int(C::W) - 1 : 1,
                   C::source_rows ? rank : 0,
                   C::packets ? ctx.sent_flag + args.use(1) : 0};
  each_units<Put<C>::kAhead, most_units<C, X>()>(units_of<C, X>(box), put);
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

// Units k of a tile from ranks [from, from + kSources): of[k][j] is that of rank from + j.
template <class C, int kAhead, int kSources>
struct Parts {
  using X = typename C::X;
  using S = typename C::S;
  using Unit = PacketUnit<C, S>;
  static constexpr int V = unit_elements<C, S>();
  static constexpr bool kSame = is_same<X, S>;
  Raw<S, V> of[kAhead][kSources];

  // This rank's units in the form in which they would have arrived: loaded together with the
  // others', and used after these.
  template <bool kAll, class P>
  struct Own {
    static constexpr bool kAsIs = kSame && is_same<P, const X*>;
    typename Unit::Bits bits[kAhead];
    Asked<1, P> asked[kAsIs ? 1 : kAhead][kAsIs ? 1 : V];
    MACO_FN void ask(const P& x, const TileBox<C>& box, const Units<kAll>& units) {
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if constexpr (kAsIs) {
          bits[k] = Unit::load(x, box, units, k);
        } else {
          MACO_UNROLL
          for (int e = 0; e < V; ++e)
            if (const u32 at = units.at(k) * V + e; at < box.count())
              asked[k][e].ask(x + box.element(at));
        }
      }
    }
    MACO_FN void take(Context& ctx, const TileBox<C>& box, const Units<kAll>& units) {
      if constexpr (!kAsIs) {
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          MACO_UNROLL
          for (int e = 0; e < V; ++e)
            if (units.at(k) * V + e < box.count())
              bits[k].v[e] = convert<S>(asked[k][e].take(ctx, 0).v[0]);
        }
      }
    }
  };

  // Loads this rank's units from the tile that begins at x, and the others' from where the tile
  // begins in the first row of slots. ask() issues loads of what else is needed at the same time,
  // and may be called again. Returns false if the run stops.
  template <bool kAll, class P, class F>
  MACO_FN bool load(Context& ctx, int rank, const P& x, S* slots, const TileBox<C>& box,
                    const Units<kAll>& units, int from, u32 flag, F ask) {
    if constexpr (C::packets) {
      // If all ranks are loaded at once, only the others are awaited: j is rank j, or rank j + 1
      // behind this rank.
      constexpr bool kWhole = kSources == C::W;
      constexpr int kOthers = kWhole && kSources > 1 ? kSources - 1 : kSources;
      Own<kAll, P> own;
      Packets<kAhead * kOthers, Unit::kSide> arrived;
      MACO_UNROLL
      for (int j = 0; j < kOthers; ++j) {
        const int s = from + j + (kWhole && j >= rank);
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          u64* slot = Unit::place(slots, s, box.at, units.at(k));
          const bool waits = kWhole ? C::W > 1 : s < int(C::W) && s != rank;
          arrived.from(k * kOthers + j, slot, s, waits);
        }
      }
      const auto ask_all = [&] {
        ask();
        own.ask(x, box, units);
      };
      if (!await_packets_with(ctx, arrived, flag, 1, ask_all)) return false;
      own.take(ctx, box, units);
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        MACO_UNROLL
        for (int j = 0; j < kSources; ++j) {
          MACO_UNROLL
          for (int h = 0; h < Unit::kSide; ++h) {
            u32 word = arrived.word(k * kOthers + (j < kOthers ? j : 0), h);
            if (kWhole && j > 0 && j > rank) word = arrived.word(k * kOthers + j - 1, h);
            of[k][j].words.v[h] = from + j == rank ? own.bits[k].words[h] : word;
          }
        }
      }
    } else {
      ask();
      MACO_UNROLL
      for (int j = 0; j < kSources; ++j) {
        const int s = from + j < int(C::W) ? from + j : rank;
        const X* slot = slots + s * slot_row_elements<C>() + box.at;
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k)
          of[k][j].load(s == rank ? x + box.template unit<V>(units, k)
                                  : slot + i64(units.at(k)) * V);
      }
    }
    return true;
  }
};

// What else is combined with a sum's elements.
template <class C, bool kFinished>
struct AsksOf {
  using type = typename C::Asks;
};
template <class C>
struct AsksOf<C, false> {
  struct type {};
};
// What a task of `combine` works with. kFinished: sums go through C::finish.
template <class C, bool kFinished>
struct Combine {
  using X = typename C::X;
  using Y = typename C::Y;
  using S = typename C::S;  // type in slots: X, or f32 in packets
  using A = AccOf<X>;
  // All ranks at once or, if they are many, some after the others.
  static constexpr int kSources = C::W < kLoadsAhead ? int(C::W) : kLoadsAhead;
  static constexpr int kAhead = units_ahead<C, S>(kLoadsAhead / kSources);
  static constexpr int V = unit_elements<C, S>();
  using Asks = typename AsksOf<C, kFinished>::type;
  Context& ctx;
  const Args& args;
  const TileBox<C>& box;
  int rank;
  decltype(to_read<X, C::x_packets>(args, 0)) x;  // where the tile begins
  S* slots;
  decltype(to_write<Y, C::y_packets>(args, 2)) y;  // likewise
  PeerSlots<Y> results;
  i64 result_at;  // of the tile in these slots
  u32 flag, sent_flag;

  template <bool kAll>
  MACO_FN bool move(Units<kAll> units) const {
    Asks asks[kAhead][V];
    A sum[kAhead][V] = {};
    for (int from = 0; from < int(C::W); from += kSources) {
      Parts<C, kAhead, kSources> parts;
      const auto ask = [&] {
        if constexpr (kFinished) {
          if (from + kSources < int(C::W)) return;  // together with the last
          MACO_UNROLL
          for (int k = 0; k < kAhead; ++k) {
            MACO_UNROLL
            for (int e = 0; e < V; ++e) {
              const u32 i = units.at(k) * V + e;
              const i64 at = box.origin + box.element(i < box.count() ? i : 0);
              asks[k][e].ask(args, at / C::cols, at % C::cols);
            }
          }
        }
      };
      if (!parts.load(ctx, rank, x, slots, box, units, from, flag, ask)) return false;
      MACO_UNROLL
      for (int j = 0; j < kSources; ++j) {
        if (from + j >= int(C::W)) continue;
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          MACO_UNROLL
          for (int e = 0; e < V; ++e) {
            const A part = to_acc(parts.of[k][j].v[e]);
            sum[k][e] = from + j == 0 ? part : reduce_step<C>(sum[k][e], part);
          }
        }
      }
    }
    Y result[kAhead][V];
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      MACO_UNROLL
      for (int e = 0; e < V; ++e) {
        const A whole = reduce_end<C>(sum[k][e]);
        if constexpr (kFinished)
          result[k][e] = from_acc<Y>(C::finish(asks[k][e].more(args), whole));
        else
          result[k][e] = from_acc<Y>(whole);
      }
      store_unit<C, S>(y, box, units, k, result[k]);
    }
    if constexpr (C::forward) {
      for (int p = 1; p < int(C::W); ++p) {
        Y* to = results[(rank + p) % int(C::W)];
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k)
          if (units.there(k))
            forward_unit<C>(to, result_at, box, units.at(k), result[k], sent_flag);
      }
    }
    return true;
  }
};

template <class C, bool kFinished>
MACO_FN void combine_tile(Context& ctx, const Args& args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const int rank = ctx.rank();
  const i64 block = C::own_blocked ? i64(rank) * C::rows::get(ctx) * C::cols : 0;
  const Combine<C, kFinished> combine{ctx,
                                      args,
                                      box,
                                      rank,
                                      to_read<X, C::x_packets>(args, 0) + (block + box.origin),
                                      args.template ptr<typename C::S>(1),
                                      to_write<Y, C::y_packets>(args, 2) + box.origin,
                                      PeerSlots<Y>(args, C::forward ? 3 : 1, rank),
                                      i64(tile) * C::stride,
                                      C::packets ? ctx.first_flag + args.use(1) : 0,
                                      C::forward_packets ? ctx.sent_flag + args.use(3) : 0};
  using S = typename C::S;
  each_units<Combine<C, kFinished>::kAhead, most_units<C, S>()>(units_of<C, S>(box), combine);
}
template <class C>
MACO_OP void combine(Context& ctx, Args args, u32 tile) {
  combine_tile<C, false>(ctx, args, tile);
}
template <class C>
MACO_OP void combine_finished(Context& ctx, Args args, u32 tile) {
  combine_tile<C, true>(ctx, args, tile);
}

// What a task of `take` works with.
template <class C>
struct Take {
  using X = typename C::X;
  using Y = typename C::Y;
  using Unit = PacketUnit<C, X>;
  static constexpr int V = unit_elements<C, X>();
  static constexpr int kAhead = units_ahead<C, X>(kLoadsAhead);
  Context& ctx;
  const TileBox<C>& box;
  int source;
  X* from;  // slots, or where the own tile begins
  i64 row;  // of slots
  Y* y;     // where the tile begins
  u32 flag;

  template <bool kAll>
  MACO_FN bool move(Units<kAll> units) const {
    Raw<X, V> v[kAhead];
    if constexpr (C::packets) {
      Packets<kAhead, Unit::kSide> arrived;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k)
        arrived.from(k, Unit::place(from, row, box.at, units.at(k)), source);
      if (!await_packets(ctx, arrived, flag, 0)) return false;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        MACO_UNROLL
        for (int h = 0; h < Unit::kSide; ++h) v[k].words.v[h] = arrived.word(k, h);
      }
    } else if constexpr (C::own) {
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) v[k].load(from + box.template unit<V>(units, k));
    } else {
      const X* tile = from + row * slot_row_elements<C>() + box.at;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) v[k].load(tile + i64(units.at(k)) * V);
    }
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      Y result[V];
      MACO_UNROLL
      for (int e = 0; e < V; ++e) result[e] = convert<Y>(v[k].v[e]);
      store_unit<C, X>(y, box, units, k, result);
    }
    return true;
  }
};

template <class C>
MACO_OP void take(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const int source = C::own ? ctx.rank() : peer_of<C>(ctx, tile);
  const i64 block = i64(source) * C::rows::get(ctx) * C::cols;
  const i64 own_at = C::own ? box.origin + (C::own_blocked ? block : 0) : 0;
  const Take<C> take{ctx,
                     box,
                     source,
                     args.template ptr<X>(0) + own_at,
                     C::source_rows ? source : 0,
                     args.template ptr<Y>(1) + (C::blocked ? block : 0) + box.origin,
                     C::packets ? ctx.first_flag + args.use(0) : 0};
  each_units<Take<C>::kAhead, most_units<C, X>()>(units_of<C, X>(box), take);
}

template <class C>
MACO_OP void clear(Context& ctx, Args args, u32 tile) {
  using Y = typename C::Y;
  constexpr int V = tile_vector<C, Y>();
  const TileBox<C> box(ctx, tile_of<C>(tile));
  Y* y = args.template ptr<Y>(0) + box.origin;
  Raw<Y, V> zeros;
  for (int e = 0; e < V; ++e) zeros.v[e] = from_acc<Y>(AccOf<Y>(0));
  for (u32 i = consumer_thread(); i < box.count() / V; i += kConsumers)
    zeros.store(y + box.element(i * V));
}

template <class C>
MACO_OP void nothing(Context&, const Args&, u32) {}

}  // namespace ops
}  // namespace maco
