// put.cuh: a tile into slots of peers.
//
// C: as in collectives.cuh. Operands: x, slots.

namespace maco {
namespace ops {

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

}  // namespace ops
}  // namespace maco
