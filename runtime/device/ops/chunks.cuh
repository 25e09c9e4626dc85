// chunks.cuh: a tile of a user's algorithm, copied from one place or reduced from several, to one
// or more places.
//
// C: W, cols, BR, BC, across, stride, rows, packets, reduce as in collectives.cuh; x_blocks,
// y_blocks: the tensor has a block for each rank; slots: there are some, of Part; moves: where task
// `tile` of all begins in the table, and then its tile, 1 << 32 if the result is whole, how many
// places it reads and how many it writes << 16, and the places: 1 a cell of slots, 0 a block of a
// tensor; which block, or of slots the rank that sent it or gets it, << 8; the cell << 32.
// Operands: x, y, slots.

namespace maco {
namespace ops {

// Tiles lie as those of collectives.cuh: each has a cell.
template <class C>
struct ChunkTiles : C {
  static constexpr i64 slot_div = 1, T = 1;
};

template <class C>
struct Chunks {
  using X = typename C::X;
  using Y = typename C::Y;
  using Part = typename C::Part;
  using A = AccOf<Part>;
  using Tiles = ChunkTiles<C>;
  using Unit = PacketUnit<Tiles, Part>;
  // As many elements at once as a packet has, or as the widest access holds.
  using Measure = typename Either<(C::packets || sizeof(Part) >= sizeof(Y)), Part, Y>::type;
  static constexpr int V = unit_elements<Tiles, Measure>();
  static constexpr int kAhead = units_ahead<Tiles, Measure>(kLoadsAhead);
  static constexpr bool kRows = !C::packets || Unit::kSide == 2;  // each unit lies in one row
  static constexpr bool kAlike = is_same<X, Part> && is_same<Y, Part>;
  Context& ctx;
  const TileBox<Tiles>& box;
  const X* x;
  Y* y;
  Part* slots;
  PeerSlots<Part> peers;
  int place;  // index of the first place in the table
  int from, to;
  bool whole;
  i64 block;  // elements of a tensor's block
  u32 flag, sent_flag;

  static MACO_FN bool is_slot(u64 word) { return (word & 1) != 0; }
  static MACO_FN int rank_of(u64 word) { return int(word >> 8 & 0xff); }
  static MACO_FN i64 cell_of(u64 word) { return i64(word >> 32) * C::stride; }

  template <bool kAll>
  MACO_FN void load_tensor(Raw<X, V> (&v)[kAhead], const X* tile, const Units<kAll>& units) const {
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if constexpr (kRows) {
        v[k].load(tile + box.template unit<V>(units, k));
      } else {
        const u32 first = units.at(k) * V;
        for (u32 e = 0; e < V; ++e)
          if (first + e < box.count()) v[k].v[e] = gload(tile + box.element(first + e));
      }
    }
  }
  // Returns false if the run stops.
  template <bool kAll>
  MACO_FN bool load_slot(Raw<Part, V> (&v)[kAhead], u64 word, const Units<kAll>& units) const {
    const i64 at = cell_of(word);
    if constexpr (C::packets) {
      Packets<kAhead, Unit::kSide> arrived;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k)
        arrived.from(k, Unit::place(slots, 0, at, units.at(k)), rank_of(word));
      if (!await_packets(ctx, arrived, flag, 2)) return false;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        MACO_UNROLL
        for (int h = 0; h < Unit::kSide; ++h) v[k].words.v[h] = arrived.word(k, h);
      }
    } else {
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) v[k].load(slots + at + i64(units.at(k)) * V);
    }
    return true;
  }

  template <bool kAll>
  MACO_FN bool move(Units<kAll> units) const {
    A sum[kAhead][V];
    Raw<Part, V> bits[kAhead];
    for (int j = 0; j < from; ++j) {
      const u64 word = C::moves(place + j);
      A part[kAhead][V];
      if (C::slots && is_slot(word)) {
        if (!load_slot(bits, word, units)) return false;
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          MACO_UNROLL
          for (int e = 0; e < V; ++e) part[k][e] = to_acc(bits[k].v[e]);
        }
      } else {
        Raw<X, V> own[kAhead];
        load_tensor(own, x + (C::x_blocks ? rank_of(word) * block : 0) + box.origin, units);
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          MACO_UNROLL
          for (int e = 0; e < V; ++e) {
            part[k][e] = to_acc(own[k].v[e]);
            if constexpr (kAlike) bits[k].v[e] = own[k].v[e];
          }
        }
      }
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        MACO_UNROLL
        for (int e = 0; e < V; ++e)
          sum[k][e] = j == 0 ? part[k][e] : reduce_step<C>(sum[k][e], part[k][e]);
      }
    }
    // If all types are the same and there is one source, bits are kept.
    Y result[kAhead][V];
    Part sent[kAhead][V];
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      MACO_UNROLL
      for (int e = 0; e < V; ++e) {
        const A a = whole && from > 1 ? reduce_end<C>(sum[k][e]) : sum[k][e];
        result[k][e] = from_acc<Y>(a);
        sent[k][e] = whole && from > 1 ? from_acc<Part>(to_acc(result[k][e])) : from_acc<Part>(a);
        if constexpr (kAlike) {
          if (from == 1) {
            sent[k][e] = bits[k].v[e];
            result[k][e] = bits[k].v[e];
          }
        }
      }
    }
    for (int j = from; j < from + to; ++j) {
      const u64 word = C::moves(place + j);
      if (C::slots && is_slot(word)) {
        Part* next = peers[rank_of(word)];
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k)
          if (units.there(k)) send(next, cell_of(word), units.at(k), sent[k]);
      } else {
        Y* tile = y + (C::y_blocks ? rank_of(word) * block : 0) + box.origin;
        MACO_UNROLL
        for (int k = 0; k < kAhead; ++k) store_unit<Tiles, Part>(tile, box, units, k, result[k]);
      }
    }
    return true;
  }
  MACO_FN void send(Part* next, i64 at, u32 i, const Part (&v)[V]) const {
    if constexpr (C::packets) {
      typename Unit::Bits packet;
      MACO_UNROLL
      for (int e = 0; e < V; ++e) packet.v[e] = v[e];
      Unit::send(Unit::place(next, 0, at, i), packet, sent_flag);
    } else {
      store_row(next + at + i64(i) * V, v);
    }
  }
};

template <class C>
MACO_OP void chunks(Context& ctx, Args args, u32 task) {
  using X = typename C::X;
  using Y = typename C::Y;
  using Part = typename C::Part;
  using Tiles = ChunkTiles<C>;
  constexpr int kSlots = C::slots ? 2 : 1;  // without slots this operand isn't used
  const int at = (int)C::moves((int)task);
  const TileBox<Tiles> box(ctx, (u32)C::moves(at));
  const u64 head = C::moves(at + 1);
  const Chunks<C> chunks{ctx,
                         box,
                         args.template ptr<X>(0),
                         args.template ptr<Y>(1),
                         args.template ptr<Part>(kSlots),
                         PeerSlots<Part>(args, kSlots, ctx.rank()),
                         at + 2,
                         (int)(head & 0xffff),
                         (int)(head >> 16 & 0xffff),
                         (head >> 32 & 1) != 0,
                         C::rows::get(ctx) * C::cols,
                         C::packets ? ctx.first_flag + args.use(kSlots) : 0,
                         C::packets ? ctx.sent_flag + args.use(kSlots) : 0};
  using Measure = typename Chunks<C>::Measure;
  each_units<Chunks<C>::kAhead, most_units<Tiles, Measure>()>(units_of<Tiles, Measure>(box),
                                                              chunks);
}

}  // namespace ops
}  // namespace maco
