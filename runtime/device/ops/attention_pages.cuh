// attention_pages: how keys and values of a head come through pages, in lines of 128 bytes
// (tensor_cores.cuh). A line has 64 elements of one key: one group of the head. A block has kKeys
// keys. Lines of a page that a group doesn't fill belong to the next group. The groups of the keys
// come first, then, in pages of their own, those of the values.

namespace maco::ops {

template <class C>
struct HeadGroups {
  static constexpr int D = (int)C::D;
  static constexpr int kGroups = (D + kBlockK - 1) / kBlockK;
  static constexpr int kSteps = (D + 15) / 16;  // of 16 elements
  static constexpr i64 kCols = C::HKV * C::D;   // of keys and of values
  static_assert(D % kChunk == 0, "heads are whole chunks");
};

// Calls f(part, key, group) for everything in each page, in order, until it returns false: for
// every `stride`th block of keys in [0, end), from `begin` on. Part 0 is keys, part 1 values. The
// keys of kRound blocks come before their values.
template <int kRound, int kGroups, int kAtOnce, class F>
MACO_FN bool head_pages(i64 begin, i64 stride, i64 end, F f) {
  for (i64 round = begin; round < end; round += kRound * stride)
    for (int part = 0; part < 2; ++part)
      for (i64 at = round; at < least(end, round + kRound * stride); at += stride)
        for (int g = 0; g < kGroups; g += kAtOnce)
          if (!f(part, at, g)) return false;
  return true;
}

// Fills pages with every `stride`th block, from key `begin` on, of keys [0, end) of a head. Keys
// and values are operands kFirst and kFirst + 1. What lies behind `end` may come with them.
template <class C, int kFirst, int kKeys, int kRound = 1>
MACO_FN void head_load(Context& ctx, const Args& args, i64 kv_head, i64 begin, i64 stride,
                       i64 end) {
  using S = HeadGroups<C>;
  using P = BlockPages<kKeys>;
  using X = typename C::X;
  static_assert(S::kGroups % P::kBlocks == 0, "keys and values fill their pages");
  PageFiller pages(ctx);
  if constexpr (C::boxes) {
    int lane;
    if (elected(lane)) {
      const TensorMap *keys = args.map(kFirst), *values = args.map(kFirst + 1);
      boxes_begin();
      head_pages<kRound, S::kGroups, P::kBlocks>(begin, stride, end, [&](int part, i64 at, int g) {
        char* page = pages.acquire_boxes(P::kBlocks * kKeys * kLineBytes);
        if (!page) return false;
        MACO_UNROLL
        for (int i = 0; i < P::kBlocks; ++i)
          if constexpr (C::D % kBlockK == 0)
            pages.copy_box(page + i * kKeys * kLineBytes, part == 0 ? keys : values, at,
                           kv_head * C::D + (g + i) * kBlockK);
          else
            pages.copy_run_box(page + i * kKeys * kLineBytes, part == 0 ? keys : values, at,
                               kv_head, (g + i) * kBlockK);
        pages.publish_boxes();
        return true;
      });
    }
    pages.finish(lane);
  } else {
    const X* keys = args.ptr<const X>(kFirst) + kv_head * C::D;
    const X* values = args.ptr<const X>(kFirst + 1) + kv_head * C::D;
    const auto fill = [&](int part, i64 at, int g) {
      return tensor_fill<P, kKeys, false, C::D, S::kCols>(pages, part == 0 ? keys : values, at, end,
                                                          g, {0, 1, S::kGroups});
    };
    if (!head_pages<kRound, S::kGroups, P::kBlocks>(begin, stride, end, fill)) return;
    pages.finish();
  }
}

}  // namespace maco::ops
