// take.cuh: copies an arrived tile to a tensor (take), or clears a tile of a tensor (clear).
//
// C: as in collectives.cuh. Operands: take (slots or x, y); clear (y).

namespace maco {
namespace ops {

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

}  // namespace ops
}  // namespace maco
