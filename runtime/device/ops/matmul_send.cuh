// matmul whose tiles go to slots of peers, as `put` (put.cuh) would send them. A tile
// covers all of K, or mates have a half of a tile each (matmul_halve.cuh). With few rows (dot),
// each element goes in a packet, as f32. On tensor cores, each run is also stored in the slots; or,
// with C::behind, idle warps send a tile after it has been stored, while consumers compute the next
// tile. Otherwise a link that others use would delay the consumers.
//
// Operands a, b, y, slots, then whatever C::finish reads. C: as for matmul; ranks (W of put), T,
// stride, slot_div and mode (others, owner, block or each) as for put, whose tiles are BM x BN, or
// BM x BN / 2 for mates; packets, S: the type in slots.

namespace maco::ops {

// Where a tile goes.
template <class C>
struct TilePeers {
  using Y = typename C::Y;
  static_assert(C::method::kTiles, "tensor cores have tiles to send");
  static_assert(C::mode == PeerMode::others || C::mode == PeerMode::owner ||
                    C::mode == PeerMode::block || C::mode == PeerMode::each,
                "a tile has its peers");
  static constexpr bool kBlocks = C::mode == PeerMode::block || C::mode == PeerMode::each;
  const PeerSlots<Y> slots;
  const int first, count;  // ranks from `first` on
  const i64 begin;         // of the tile, in elements of a peer's slots

  // `own`: the slots on this rank.
  MACO_FN TilePeers(const char* own, int rank, u32 tile)
      : slots(own, rank),
        first(C::mode == PeerMode::others  ? rank + 1
              : C::mode == PeerMode::owner ? int(tile % C::ranks)
              : C::mode == PeerMode::each  ? int((rank + 1 + tile / C::T) % C::ranks)
                                           : int(tile / C::T)),
        count(C::mode == PeerMode::others ? int(C::ranks) - 1
              : first == rank             ? 0
                                          : 1),
        begin(rank * slot_row_elements<C>() +
              i64(kBlocks ? tile % C::T : tile) / C::slot_div * C::stride) {}
  MACO_FN Y* of(int p) const { return slots[(first + p) % int(C::ranks)] + begin; }
};

// Sends elements as they are stored.
template <class C>
struct TilePusher {
  using Y = typename C::Y;
  static_assert(C::BK == C::K || C::has_halve, "a tile that is sent has all sums");
  const TilePeers<C> peers;
  const int half;  // of the tile's columns, for mates
  MACO_FN TilePusher(Context& ctx, const Args& args, u32 task)
      : peers(args.template ptr<char>(C::slots_at), ctx.rank(), task),
        half(MatmulTile<C>::part_of(task)) {}

  // Stores V adjacent elements, at a row of the tile and a column of the result.
  template <int V>
  MACO_FN void store(const MatmulTile<C>& t, i64 row, i64 col, const Vec<Y, V>& v) const {
    i64 at = row * (t.end - t.col) + (col - t.col);
    if constexpr (C::has_halve) {
      const i64 begin = t.col / C::BN * C::BN + half * (C::BN / 2);
      at = row * least(C::BN / 2, t.end - begin) + (col - begin);
    }
    for (int p = 0; p < peers.count; ++p) peer_store_vec<V>(peers.of(p) + at, v);
  }
};

// The thread that has an element sends it in a packet of its own.
template <class C>
MACO_FN void matmul_send_element(const MatmulTile<C>& t, const Args& args, i64 row, i64 col,
                                 typename C::Y y) {
  static_assert(C::packets && is_same<typename C::S, float> && C::mode == PeerMode::others,
                "few rows are sent to all, as f32");
  static_assert(C::BK == C::K, "a tile that is sent is whole");
  static_assert(!is_same<typename C::Y, i32>, "f32 has what is sent");
  if (args.ctx.stopped()) return;  // a result computed behind a wait that gave up must not be used
  const int rank = args.ctx.rank();
  const PeerSlots<float> slots(args, C::slots_at, rank);
  const i64 tile = t.row / C::BM * MatmulTile<C>::kAcross + t.col / C::BN;
  const i64 at = rank * slot_row_elements<C>() + tile / C::slot_div * C::stride +
                 row * (t.end - t.col) + (col - t.col);
  const u32 flag = args.ctx.sent_flag + args.use(C::slots_at);
  for (int p = 1; p < int(C::ranks); ++p) {
    u64* const to = (u64*)slots[(rank + p) % int(C::ranks)];
    packet_store(to + at, bits_as<u32>(to_acc(y)), flag);
  }
}

template <class C>
struct SendTiles {
  static_assert(!(C::has_halve && C::behind), "mates send what they store");
  using Pusher = typename Either<C::behind, typename NoSend<C>::Pusher, TilePusher<C>>::type;
  static MACO_FN void element(const MatmulTile<C>& t, const Args& args, i64 row, i64 col,
                              typename C::Y y) {
    if constexpr (C::method::kDot) matmul_send_element(t, args, row, col, y);
  }
};

// With mode `each` the next rank's rows come first.
template <class C>
struct OrderOfSent {
  static MACO_FN u32 tile(const Context& ctx, u32 tile) {
    if constexpr (C::mode == PeerMode::each) return BlocksFrom<C, 1>::tile(ctx, tile);
    return tile;
  }
};

// Sends a tile after it was stored, in units of V elements.
template <class C>
struct TileSender {
  using Y = typename C::Y;
  static constexpr int V = vector_width(C::N, sizeof(Y));  // adjacent in tensor and slot
  static constexpr bool kSameWidth = C::N % C::BN == 0;
  // How many loads a thread has in flight: as many as the registers of threads that aren't
  // consumers hold.
  static constexpr int kAhead = 3;

  static_assert(C::BK == C::K, "a tile that is sent is whole");
  const TilePeers<C> peers;
  const Y* y;  // where the tile begins
  u32 rows, width;

  MACO_FN TileSender(Context& ctx, const SenderArgs& args, u32 tile)
      : peers(args.template ptr<char>(C::slots_at), ctx.rank(), tile) {
    constexpr u32 kAcross = (u32)((C::N + C::BN - 1) / C::BN);
    const u32 own = C::Order::tile(ctx, tile);
    const i64 row = i64(own / kAcross) * C::BM, col = i64(own % kAcross) * C::BN;
    y = args.template ptr<Y>(C::y_at) + row * C::N + col;
    rows = (u32)least(C::BM, most(C::rows::get(ctx) - row, 0));  // 0 for a missing tile
    width = (u32)(kSameWidth ? C::BN : least(C::BN, C::N - col));
  }

  MACO_FN const Y* unit(u32 i) const {
    const u32 e = i * V, across = kSameWidth ? (u32)C::BN : width;
    return y + i64(e / across) * C::N + e % across;
  }
  // Moves units at, at + senders(), ..., of which `left` exist, or all kAhead.
  template <bool kAll>
  MACO_FN void move(u32 at, int left) const {
    // Mostly units lie whole rows apart, by a number of rows that the compiler knows.
    constexpr u32 kStep = senders() * V;
    Raw<Y, V> v[kAhead];
    const Y* const from = unit(at);
    MACO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (!kAll && k >= left) continue;
      if constexpr (kSameWidth && kStep % C::BN == 0)
        v[k].load(from + k * i64(kStep / C::BN) * C::N);
      else
        v[k].load(unit(at + (u32)k * senders()));
    }
    for (int p = 0; p < peers.count; ++p) {
      Y* const to = peers.of(p) + i64(at) * V;
      MACO_UNROLL
      for (int k = 0; k < kAhead; ++k)
        if (kAll || k < left) v[k].send(to + k * kStep);
    }
  }
  MACO_FN void send() const {
    if (peers.count == 0) return;
    const u32 units = rows * width / V;
    u32 at = sender_thread();
    for (; at + (kAhead - 1) * senders() < units; at += kAhead * senders()) move<true>(at, kAhead);
    if (at < units) move<false>(at, int((units - at + senders() - 1) / senders()));
  }
};

template <class C>
MACO_FN void matmul_send(Context& ctx, const SenderArgs& args, u32 tile) {
  TileSender<C>(ctx, args, tile).send();
}

}  // namespace maco::ops
