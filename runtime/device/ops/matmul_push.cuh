// matmul whose tiles go to slots of peers as they are stored, as `put` (collectives.cuh) would send
// them from the tensor afterwards: on tensor cores, all of K in a tile.
//
// Operands a, b, y, slots, then whatever C::finish reads. C: as of matmul; ranks (W of put), T,
// stride, slot_div and mode (others, owner or block) as of put, whose tiles are BM x BN.

namespace maco::ops {

template <class C>
struct TilePusher {
  using Y = typename C::Y;
  static_assert(takes_mma(C::method) || takes_wgmma(C::method), "tensor cores have tiles to send");
  static_assert(MatmulTile<C>::kParts == 1, "a tile that is sent is whole");
  static_assert(C::mode == PeerMode::others || C::mode == PeerMode::owner ||
                    C::mode == PeerMode::block,
                "a tile has its peers");
  const PeerSlots<Y> slots;
  const int first, peers;  // ranks from `first` on
  const i64 begin;         // of the tile, in elements of a peer's slots

  MACO_FN TilePusher(Context& ctx, const Args& args, u32 tile)
      : slots(args, C::kY + 1, ctx.rank()),
        first(C::mode == PeerMode::others  ? ctx.rank() + 1
              : C::mode == PeerMode::owner ? int(tile % C::ranks)
                                           : int(tile / C::T)),
        peers(C::mode == PeerMode::others ? int(C::ranks) - 1
              : first == ctx.rank()       ? 0
                                          : 1),
        begin(ctx.rank() * slot_row_elements<C>() +
              i64(C::mode == PeerMode::block ? tile % C::T : tile) / C::slot_div * C::stride) {}

  // V elements in line, at a row of the tile and a column of the result.
  template <int V>
  MACO_FN void store(const MatmulTile<C>& t, i64 row, i64 col, const Vec<Y, V>& v) const {
    const i64 at = begin + row * (t.end - t.col) + (col - t.col);
    for (int p = 0; p < peers; ++p) peer_store_vec<V>(slots[(first + p) % int(C::ranks)] + at, v);
  }
};

template <class C>
MACO_FN void matmul_pushed(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<MatmulOf<C, false, false, true>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pushed_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<MatmulOf<C, false, false, true>>(ctx, args, tile);
}

}  // namespace maco::ops
