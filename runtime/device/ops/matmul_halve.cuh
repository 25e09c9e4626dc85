// matmul whose tasks cover half of K each. Mates have the same tile, exchange the sums of half of
// its columns each, and each finishes the other half.
//
// Operands and C as for matmul, with stage send or without, on tensor cores by boxes; BK: half of
// K, rounded up.

namespace maco::ops {

template <class C>
struct Halved {
  static_assert(C::method::kGroups && C::BM >= 64 && MatmulTile<C>::kParts == 2,
                "mates have halves of K, and tall tiles");
  static constexpr u32 kBytes = (u32)(C::BM * C::BN / 2) * 4;
  static constexpr int kPages = (kBytes + Cta::kPageBytes - 1) / Cta::kPageBytes;
  static_assert(kPages <= (int)kRingPages, "the ring has room for half of the sums");
};

template <class C>
MACO_FN void matmul_halves_load(Context& ctx, const Args& args, u32 index) {
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  const u32 exchange = ctx.exchanges;
  PageFiller pages(ctx);
  int lane;
  if (elected(lane) && matmul_fill_boxes<C>(pages, args, t)) pages.offer(Halved<C>::kBytes);
  pages.finish(lane);
  ctx.exchanges = exchange + 1;
}

template <class C>
MACO_FN void matmul_halves(Context& ctx, const Args& args, u32 index) {
  MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  TensorProduct<C> product(ctx, t);
  product.multiply_all();
  PageTaker& pages = product.pages;
  const u32 exchange = ctx.exchanges, offered = await_offer(ctx);
  if (warp_any(offered >= kRingPages)) return;
  // The place of 16 bytes in the ring's pages from page `first` on, and the page's slot.
  const auto place = [&](u32 first, int at, u32& slot) {
    slot = first + (u32)(at * 16 / Cta::kPageBytes);
    slot = slot >= kRingPages ? slot - kRingPages : slot;
    return ctx.pages() + (i64)slot * Cta::kPageBytes + at * 16 % Cta::kPageBytes;
  };
  product.tile.give_half(1 - t.part, [&](int at, const Vec<u32, 4>& v) {
    u32 slot;
    char* const to = place(offered, at, slot);
    mate_send16(to, v, &ctx.memory()->full_barriers[slot]);
  });
  if (!kCountsSent) mate_store(&ctx.memory()->mate_sent[exchange % kRingPages], exchange + 1);
  pages.await_some(Halved<C>::kPages);
  const u32 first = pages.next_page().slot;
  const auto half = product.tile.take_half(t.part, [&](int at) {
    u32 slot;
    return shared_load16(place(first, at, slot));
  });
  MACO_ROLLED
  for (int p = 0; p < Halved<C>::kPages; ++p) pages.release_page(pages.take_landed());
  pages.finish();
  warp_sync();
  ctx.exchanges = exchange + 1;
  if (!product.tile.has_half(t.part)) return;
  if (!product.tile.kInPlace) t.col += t.part * (C::BN / 2);
  matmul_tensor_store<C>(ctx, args, index, t, half);
}

}  // namespace maco::ops
