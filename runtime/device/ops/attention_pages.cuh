// attention_pages: how keys and values of a head come through pages, in lines of 128 bytes
// (tensor_cores.cuh): a line has 64 elements, a group of the head, of one key. A block of keys is
// kKeys of them, and those of a page's lines that a group leaves belong to the next group; the
// groups of the keys come first, then, in pages of their own, those of the values.

namespace maco::ops {

template <class C>
struct HeadGroups {
  static constexpr int D = (int)C::D;
  static constexpr int kGroups = (D + kBlockK - 1) / kBlockK;
  static constexpr int kSteps = (D + 15) / 16;  // of 16 elements
  static constexpr i64 kCols = C::HKV * C::D;   // of keys and of values
  static_assert(D % kChunk == 0, "heads are whole chunks");
};

// Fills pages with every `stride`th block, from key `begin` on, of keys [0, end) of a head, which
// are operands kFirst and kFirst + 1. What lies behind `end` may come with them.
template <class C, int kFirst, int kKeys>
MACO_FN void head_load(Context& ctx, const Args& args, i64 kv_head, i64 begin, i64 stride,
                       i64 end) {
  using S = HeadGroups<C>;
  using P = BlockPages<kKeys>;
  using X = typename C::X;
  static_assert(S::kGroups % P::kBlocks == 0, "keys and values fill their pages");
  PageFiller pages(ctx);
  if constexpr (C::boxes) {
    if (loader_thread() == 0) {
      const TensorMap *keys = args.map(kFirst), *values = args.map(kFirst + 1);
      boxes_begin();
      for (i64 at = begin; at < end; at += stride) {
        for (int g = 0; g < 2 * S::kGroups; g += P::kBlocks) {
          char* page = pages.acquire_boxes(P::kBlocks * kKeys * kLineBytes);
          if (!page) break;
          MACO_UNROLL
          for (int i = 0; i < P::kBlocks; ++i)
            pages.copy_box(page + i * kKeys * kLineBytes, g < S::kGroups ? keys : values, at,
                           kv_head * C::D + (g + i) % S::kGroups * kBlockK);
          pages.publish_boxes();
        }
        if (ctx.stopped()) break;
      }
    }
  } else {
    const X* keys = args.ptr<const X>(kFirst) + kv_head * C::D;
    const X* values = args.ptr<const X>(kFirst + 1) + kv_head * C::D;
    for (i64 at = begin; at < end; at += stride)
      for (int g = 0; g < 2 * S::kGroups; g += P::kBlocks)
        if (!tensor_fill<P, kKeys, false, C::D, S::kCols>(pages, g < S::kGroups ? keys : values, at,
                                                          end, g % S::kGroups, S::kGroups))
          return;
  }
  pages.finish();
}

}  // namespace maco::ops
