// combine.cuh: reduces what arrived of a tile (combine), and lets C::finish make the result of it
// (combine_finished).
//
// C: as in collectives.cuh; S: what lies in its slots, which products may have sent in packets of
//    f32.
// Operands: combine (x, slots, y[, slots of the result]); combine_finished (x, slots, y, then
//    whatever C::finish reads).

namespace maco {
namespace ops {

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

}  // namespace ops
}  // namespace maco
