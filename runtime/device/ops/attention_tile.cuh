// attention_tile: softmax(q k^T * scale) v of many query rows, on tensor cores. A task has some
// rows of some heads that share keys; row r / HB and head r % HB of the task are row r of the tile.
// A warp has sixteen rows of the tile. Each warp goes over the blocks of keys that its rows see,
// which come through pages (attention_pages.cuh), with an online softmax in f32: a row has the same
// bits in every tile. With a window a task begins with the block of the first key that one of its
// rows sees. Weights are rounded to the type of the values or, if the result has another type, to
// twice its bits.

namespace maco::ops {

template <class C>
MACO_OP void attention_tile_load(Context& ctx, Args args, u32 tile) {
  const AttentionTile<C> t(ctx, tile);
  head_load<C, 1, TileShape<C>::kKeys>(ctx, args, t.kv_head, t.begin(), TileShape<C>::kKeys,
                                       t.last);
}

template <class C, class Rows>
MACO_FN void attention_rows(Context& ctx, const Args& args, u32 tile) {
  const AttentionTile<C> t(ctx, tile);
  if (t.rows <= 0) return;
  const auto* q = args.ptr<const typename C::X>(0) + C::q_begin;
  Rows rows(t);
  rows.load_queries(q, ctx.scratch());
  rows.run(ctx, q);
  rows.store(args.ptr<typename C::Y>(3), ctx.scratch());
}
// A function with asynchronous multiplications must be inlined.
template <class C>
MACO_OP void attention_tile_alone(Context& ctx, Args args, u32 tile) {
  attention_rows<C, typename Either<(kWarpLanes == 1), LoneRows<C>, WarpRows<C>>::type>(ctx, args,
                                                                                        tile);
}

// Operands q [rows,q_cols], of which HQ*D columns from q_begin on count, k and v [.., HKV*D], y
// [rows,HQ*D]. C: X (of q, k and v), Y, rows, length, q_cols, q_begin, HQ, HKV, D, HB (heads of a
// task), BT (its rows), causal, boxes, wgmma (by groups of four warps), and the parameters of
// attention_scores.
template <class C>
MACO_FN void attention_tile(Context& ctx, const Args& args, u32 tile) {
  if constexpr (kWarpLanes > 1 && C::wgmma) {
    attention_rows<C, GroupRows<C>>(ctx, args, tile);
  } else {
    attention_tile_alone<C>(ctx, args, tile);
  }
}

}  // namespace maco::ops
