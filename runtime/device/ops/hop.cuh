// hop.cuh: a tile on its way round a ring of ranks.
//
// C: as in collectives.cuh, except that the peer is the rank whose block of a tensor is meant: of x
// if own_blocked, of y if blocked. Also: own: this rank's tile goes in; arrived: so does what the
// previous rank passed on, which comes first; keep: the result goes to y; pass: to the next rank's
// slots; In, Out: the types in these slots; places: of blocks in slots, in mode `each`. Operands:
// x, slots, y, the next rank's slots.

namespace maco {
namespace ops {

template <class A, class B>
using Wider = typename Either<(sizeof(A) >= sizeof(B)), A, B>::type;

template <class C>
struct Hop {
  using X = typename C::X;
  using Y = typename C::Y;
  using In = typename C::In;
  using Out = typename C::Out;
  static_assert(!C::packets || sizeof(In) == sizeof(Out), "packets come and go as they are");
  // As many elements at once as a packet has, or as the widest access holds.
  using Unit = PacketUnit<C, In>;
  using Sent = PacketUnit<C, Out>;
  using Measure = typename Either<C::packets, In, Wider<Wider<X, Y>, Wider<In, Out>>>::type;
  static constexpr int V = unit_elements<C, Measure>();
  static constexpr int kAhead = units_ahead<C, Measure>(kLoadsAhead);
  static constexpr bool kRows = !C::packets || Unit::kSide == 2;  // each unit lies in one row
  Context& ctx;
  const TileBox<C>& box;
  int before;  // the previous rank
  const X* x;  // where the tile begins
  In* slots;
  i64 at;  // of the tile in these slots
  Y* y;    // where the tile begins
  Out* next;
  i64 next_at;
  u32 flag, sent_flag;

  template <bool kAll>
  MACO_FN void load_own(Raw<X, V> (&own)[kAhead], const Units<kAll>& units) const {
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if constexpr (kRows) {
        own[k].load(x + box.template unit<V>(units, k));
      } else {
        const u32 first = units.at(k) * V;
        for (u32 e = 0; e < V; ++e)
          if (first + e < box.count()) own[k].v[e] = gload(x + box.element(first + e));
      }
    }
  }
  // Returns false if the run stops.
  template <bool kAll>
  MACO_FN bool load_arrived(Raw<In, V> (&in)[kAhead], const Units<kAll>& units) const {
    if constexpr (C::packets) {
      Packets<kAhead, Unit::kSide> arrived;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k)
        arrived.from(k, Unit::place(slots, 0, at, units.at(k)), before);
      if (!await_packets(ctx, arrived, flag, 1)) return false;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        MACO_UNROLL
        for (int h = 0; h < Unit::kSide; ++h) in[k].words.v[h] = arrived.word(k, h);
      }
    } else {
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) in[k].load(slots + at + i64(units.at(k)) * V);
    }
    return true;
  }
  template <class T>
  MACO_FN T result(In in, X own) const {
    if constexpr (!C::arrived) {
      return convert<T>(own);
    } else if constexpr (!C::own) {
      return convert<T>(in);
    } else {
      return from_acc<T>(reduce_end<C>(reduce_step<C>(to_acc(in), to_acc(own))));
    }
  }

  template <bool kAll>
  MACO_FN bool move(Units<kAll> units) const {
    Raw<X, V> own[kAhead];
    Raw<In, V> in[kAhead];
    if constexpr (C::own) load_own(own, units);
    if constexpr (C::arrived) {
      if (!load_arrived(in, units)) return false;
    }
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if constexpr (C::pass) {
        Out sent[V];
        MACO_UNROLL
        for (int e = 0; e < V; ++e) sent[e] = result<Out>(in[k].v[e], own[k].v[e]);
        if (units.there(k)) send(units.at(k), sent);
      }
      if constexpr (C::keep) {
        Y kept[V];
        MACO_UNROLL
        for (int e = 0; e < V; ++e) kept[e] = result<Y>(in[k].v[e], own[k].v[e]);
        store_unit<C, In>(y, box, units, k, kept);
      }
    }
    return true;
  }
  MACO_FN void send(u32 i, const Out (&v)[V]) const {
    if constexpr (C::packets) {
      typename Sent::Bits bits;
      MACO_UNROLL
      for (int e = 0; e < V; ++e) bits.v[e] = v[e];
      Sent::send(Sent::place(next, 0, next_at, i), bits, sent_flag);
    } else {
      store_row(next + next_at + i64(i) * V, v);
    }
  }
};

template <class C>
MACO_OP void hop(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using In = typename C::In;
  using Out = typename C::Out;
  const TileBox<C> box(ctx, tile_of<C>(tile));
  const int rank = ctx.rank();
  const i64 block = i64(peer_of<C>(ctx, tile)) * C::rows::get(ctx) * C::cols;
  constexpr bool kEach = C::mode == PeerMode::each;
  const u32 j = tile / u32(C::T), t = tile % u32(C::T);
  const i64 at = kEach ? i64(j) % C::places * C::T + t : tile;
  const i64 next_at = kEach && j > 0 ? i64(j - 1) % C::places * C::T + t : tile;
  const Hop<C> hop{ctx,
                   box,
                   int((rank + C::W - 1) % C::W),
                   args.template ptr<X>(0) + (C::own_blocked ? block : 0) + box.origin,
                   args.template ptr<In>(1),
                   at * C::stride,
                   args.template ptr<Y>(2) + (C::blocked ? block : 0) + box.origin,
                   PeerSlots<Out>(args, 3, rank)[int((rank + 1) % C::W)],
                   next_at * C::stride,
                   C::packets ? ctx.first_flag + args.use(1) : 0,
                   C::packets ? ctx.sent_flag + args.use(3) : 0};
  using Measure = typename Hop<C>::Measure;
  each_units<Hop<C>::kAhead, most_units<C, Measure>()>(units_of<C, Measure>(box), hop);
}

}  // namespace ops
}  // namespace maco
