// attention_tile_group.cuh: the rows of a task that four warps have together.

namespace maco::ops {

// Four warps together multiply 64 rows by what bulk copies brought. All values of a block count,
// with weight 0 for values that a row doesn't see. Values behind the last key are replaced by
// zeros, so that garbage has no effect. If a value that only some rows see isn't finite, each value
// is added by itself.
//
// Keys go in chunks of 64, or of 32 for long heads. While scores of a chunk become weights, the
// next chunk's scores are multiplied, and the values of the chunk before are weighted: neither
// tensor cores nor exponentials wait for the other.
template <class C>
constexpr int kKeysAtOnce = (int)least(kBlockK, TileShape<C>::kKeys);
template <class C>
struct GroupRows : WarpRows<C, kKeysAtOnce<C>> {
  using Base = WarpRows<C, kKeysAtOnce<C>>;
  using S = TileShape<C>;
  using X = typename C::X;
  using Scores = typename Base::Scores;
  static constexpr int kRows = 64;
  static constexpr int kGroupBytes = kWarps * kTileRows * kLineBytes;
  static constexpr u32 kUnit = 16;                                                 // of operands
  static constexpr int kChunkKeys = Base::kKeys, kChunks = S::kKeys / kChunkKeys;  // of a block
  static constexpr u32 kChunkUnits = kChunkKeys * kLineBytes / kUnit;
  static constexpr int kPairKeys = 2 * kChunkKeys;
  static constexpr bool kAtOnce = S::kGroups == 1;  // else there are too few registers
  static_assert(!S::kTwice, "weights have the bits of values");
  static_assert(kChunks == 1 || kChunks == 2, "a pair of chunks is two blocks, or one");
  // Chunks overlap if the ring holds the pages that are needed at once. If each chunk has pages of
  // its own, these are from the values of a chunk to the values of the next but one; else from the
  // values of a block to those of the next. Otherwise blocks follow one another.
  static constexpr u32 kPagesAtOnce = kChunks == 1 ? 5 : 3;
  static constexpr bool kOverlaps = kRingPages >= kPagesAtOnce;
  static_assert(kRingPages >= 2, "keys and values of a block are held");
  static_assert(S::kGroups * kGroupBytes <= kScratchBytes, "queries stay in the scratch memory");
  using Base::kWindow;
  using Base::score;
  using Base::sum;
  using Base::t;
  int some_see;     // keys up to which some row of the group sees
  u32 queries = 0;  // the operand: lines of all rows of the tile, group by group of the head

  MACO_FN explicit GroupRows(const AttentionTile<C>& tile) : Base(tile) {
    const int first = this->own_warp / 4 * kRows;  // of the tile's rows
    some_see =
        first < t.rows * C::HB ? (int)t.limit(least((first + kRows - 1) / C::HB, t.rows - 1)) : 0;
  }
  // Whether a row of the group sees a key before `end`.
  MACO_FN bool sees_before(int end) const {
    return kWindow == 0 || end > (int)t.limit(this->own_warp / 4 * kRows / C::HB) - kWindow;
  }

  MACO_FN void load_queries(const X* from, char* scratch) {
    // All of them at once. (Missing rows may hold anything. What lies behind a head in its last
    // step may not, because it is multiplied by zeros of keys.)
    const i64 first = t.first * C::q_cols + t.head * C::D;
    Vec<X, kChunk> chunks[S::kGroups][kTileRows * kChunk / kWarpLanes];
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) {
      int n = 0;
      this->template each_chunk<C::q_cols>(g, [&](int, bool there, i64 at) {
        Vec<X, kChunk>& chunk = chunks[g][n++];
        chunk = gload_vec<kChunk>(from + (there ? at : first));
        if (S::D % 16 != 0 && !there) chunk = {};
      });
    }
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) {
      char* own = this->lines(scratch + g * kGroupBytes);
      int n = 0;
      this->template each_chunk<C::q_cols>(
          g, [&](int to, bool, i64) { *(Vec<X, kChunk>*)(own + to) = chunks[g][n++]; });
    }
    operands_begin();
    cta_sync();
    queries =
        (u32)warp_uniform((int)wgmma_operand(scratch + this->own_warp / 4 * kRows * kLineBytes));
  }

  // A page as an operand. This takes a trip through the shuffle unit, so it should be requested
  // early.
  static MACO_FN u32 operand(const PageTaker& pages, PageUse page) {
    return (u32)warp_uniform(
        (int)wgmma_operand<S::kKeys>(pages.pages + (i64)page.slot * Cta::kPageBytes));
  }
  // These two begin multiplications for a chunk, behind a wgmma_begin.
  MACO_FN void score_keys(Scores& scores, u32 keys) {
    constexpr u32 kStep = 32 / kUnit, kGroupUnits = S::kKeys * kLineBytes / kUnit;
    wgmma_new<kChunkKeys, Base::kBf16>(scores, queries, keys);
    MACO_UNROLL
    for (int s = 1; s < S::kSteps; ++s)
      wgmma<kChunkKeys, Base::kBf16, 0, 0>(scores,
                                           queries + s / 4 * (kGroupBytes / kUnit) + s % 4 * kStep,
                                           keys + s / 4 * kGroupUnits + s % 4 * kStep);
    wgmma_end();
  }
  // Weights in the form that multiplications take.
  using Weights = u32[kChunkKeys / 16][4];
  MACO_FN void pack_weights(const Scores& scores, Weights& weights) const {
    MACO_UNROLL
    for (int s = 0; s < kChunkKeys / 16; ++s) {
      MACO_UNROLL
      for (int i = 0; i < 4; ++i) {
        weights[s][i] =
            Base::pair(scores[2 * s + i / 2][i % 2 * 2], scores[2 * s + i / 2][i % 2 * 2 + 1]);
        settle(weights[s][i]);  // else it is computed between multiplications, which then wait
      }
    }
  }
  MACO_FN void add_values(const Weights& weights, u32 values) {
    constexpr u32 kStep = 16 * kLineBytes / kUnit;
    MACO_UNROLL
    for (int s = 0; s < kChunkKeys / 16; ++s)
      wgmma_rows<16 * S::kSteps, Base::kBf16>(sum, weights[s], values + s * kStep);
    wgmma_end();
  }
  // Scores are dead from here on. Registers would be kept for them if some rows have none.
  MACO_FN void forget_scores() {
    MACO_UNROLL
    for (int j = 0; j < kChunkKeys / 8; ++j) {
      MACO_UNROLL
      for (int e = 0; e < 4; ++e) forget(score[j][e]);
    }
  }

  // The same value by value, as in WarpRows.
  MACO_FN void add_each_value(const char* values, int begin, char* scratch) {
    MACO_UNROLL
    for (int j = 0; j < kChunkKeys / 8; j += 2) {
      const int count = (int)least(some_see - begin - j * 8, 16);
      if (count > 0) this->add_each(values, begin + j * 8, j, count, scratch);
    }
  }

  // All consumers replace the values of a block behind the last key by zeros. Returns whether
  // another value isn't finite.
  MACO_FN bool tidy_values(char* values, int begin) const {
    u32 odd = 0;
    MACO_UNROLL
    for (int i = 0; i < kPageLines * kChunk / kConsumers; ++i) {
      const int at = i * kConsumers + this->thread;
      auto* chunk = (Vec<u32, 4>*)(values + at * 16);
      if (begin + at / kChunk % S::kKeys < t.length) {
        const Vec<u32, 4> v = *chunk;
        MACO_UNROLL
        for (int e = 0; e < 4; ++e) odd |= Base::not_finite(v.v[e]);
      } else {
        *chunk = {};
      }
    }
    if (begin + S::kKeys > t.length) operands_begin();
    return cta_any(odd != 0);
  }

  // Where a chunk lies.
  struct Place {
    PageUse keys, values;    // pages
    u32 keys_at, values_at;  // operands
  };
  // Goes over chunks in order; takes a block's pages with its first chunk.
  struct ChunkTaker {
    PageTaker& pages;
    // For the next pages: their operands, and whether they have arrived.
    u32 keys_at, values_at;
    bool landed;
    MACO_FN explicit ChunkTaker(PageTaker& p) : pages(p) { look(); }
    MACO_FN void look() {
      // The ring must hold two pages more than are in use by then, or they can't have arrived.
      landed = kRingPages >= kPagesAtOnce + 2 && pages.landed(2);
      PageUse page = pages.next_page();
      keys_at = operand(pages, page);
      page.next();
      values_at = operand(pages, page);
    }
    MACO_FN Place take_block() {
      if (!landed) pages.await(2);
      const PageUse keys = pages.take_landed();
      return {keys, pages.take_landed(), keys_at, values_at};
    }
    // The chunk behind `place`; kOdd: the second of a pair.
    template <bool kOdd>
    MACO_FN Place after(const Place& place) {
      if constexpr (kOdd && kChunks == 2) {
        return {place.keys, place.values, place.keys_at + kChunkUnits,
                place.values_at + kChunkUnits};
      } else {
        return take_block();
      }
    }
  };
  // Whether the first chunk of a pair is the last of its block; the second always is.
  static constexpr bool kEvenIsLast = kChunks == 1;

  // Computes the weights of a chunk behind multiplications that have begun. These have then ended,
  // and sums and weights are relative to the same score. The first chunk of a row would be weighted
  // twice.
  template <bool kFirst>
  MACO_FN void weigh_chunk(Scores& scores, Weights& weights) {
    constexpr bool kApart = kAtOnce && !kFirst;
    float shrink[2];
    Scores apart;
    Scores& unpacked = kApart ? apart : scores;
    // The compiler would move a wait that doesn't depend on this computation in front of it.
    if (this->template weigh_scores<false, kApart>(scores, unpacked, 0, shrink)) {
      wgmma_wait();
      this->shrink_sums(shrink);
    } else {
      wgmma_wait();
    }
    pack_weights(unpacked, weights);
  }

  // The next `count` keys, in whole pairs of chunks; all rows see all of them.
  MACO_FN void add_seen_chunks(PageTaker& pages, int count) {
    ChunkTaker taker(pages);
    Scores odd;
    Weights weights;
    Place before, now = taker.take_block();
    taker.look();
    wgmma_begin();
    score_keys(score, now.keys_at);
    wgmma_wait();
    if (kEvenIsLast) pages.release_page(now.keys);
    Place next = taker.template after<true>(now);
    if (kEvenIsLast) taker.look();
    wgmma_begin();
    score_keys(odd, next.keys_at);
    weigh_chunk<true>(score, weights);
    pages.release_page(next.keys);
    for (int begin = kPairKeys; begin < count; begin += kPairKeys) {
      before = now, now = next, next = taker.template after<false>(now);
      wgmma_begin();
      add_values(weights, before.values_at);
      score_keys(score, next.keys_at);
      taker.look();
      weigh_chunk<false>(odd, weights);
      if (kEvenIsLast) {
        pages.release_page(before.values);
        pages.release_page(next.keys);
      }
      before = now, now = next, next = taker.template after<true>(now);
      if (kEvenIsLast) taker.look();
      wgmma_begin();
      add_values(weights, before.values_at);
      score_keys(odd, next.keys_at);
      weigh_chunk<false>(score, weights);
      pages.release_page(before.values);
      pages.release_page(next.keys);
    }
    wgmma_begin();
    add_values(weights, now.values_at);
    weigh_chunk<false>(odd, weights);
    if (kEvenIsLast) pages.release_page(now.values);
    wgmma_begin();
    add_values(weights, next.values_at);
    wgmma_wait();
    pages.release_page(next.values);
  }

  // The next block of keys; some rows see some of them.
  MACO_FN void add_block(Context& ctx, PageTaker& pages, int block, const X* q) {
    const u32 keys_at = operand(pages, pages.next_page());
    pages.take();
    const u32 values_at = operand(pages, pages.next_page());
    const char* values = pages.take();
    if (tidy_values((char*)values, block)) {
      add_odd_block(ctx, values, keys_at, block, q);
    } else if (block < some_see && sees_before(block + S::kKeys)) {
      Scores more;
      Weights weights;
      wgmma_begin();
      score_keys(score, keys_at);
      if (kChunks == 2) score_keys(more, keys_at + kChunkUnits);
      wgmma_wait();
      this->template weigh_keys<true>(block);
      pack_weights(score, weights);
      wgmma_begin();
      add_values(weights, values_at);
      if (kChunks == 2 && block + kChunkKeys < some_see) {
        float shrink[2];
        const bool grown =
            this->template weigh_scores<true, false>(more, more, block + kChunkKeys, shrink);
        wgmma_wait();
        if (grown) this->shrink_sums(shrink);
        pack_weights(more, weights);
        wgmma_begin();
        add_values(weights, values_at + kChunkUnits);
      }
      wgmma_wait();
    }
    pages.release();
    pages.release();
  }
  // The same for values that aren't finite.
  MACO_FN void add_odd_block(Context& ctx, const char* values, u32 keys_at, int block, const X* q) {
    MACO_ROLLED
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int begin = block + chunk * kChunkKeys;
      const bool some = begin < some_see && sees_before(begin + kChunkKeys);
      forget_scores();
      if (some) {
        wgmma_begin();
        score_keys(score, keys_at + chunk * kChunkUnits);
        wgmma_wait();
        this->template weigh_keys<true>(begin);
      }
      cta_sync();  // the queries' memory is used for something else for a while
      if (some) add_each_value(values + chunk * (kChunkKeys * kLineBytes), begin, ctx.scratch());
      cta_sync();
      load_queries(q, ctx.scratch());
    }
  }

  MACO_FN void run(Context& ctx, const X* q) {
    const int tile_sees = (int)t.limit(0), last = (int)t.last;  // all rows see this far; one sees
    PageTaker pages(ctx);
    int block = (int)t.begin();
    if constexpr (kWindow > 0) {
      while (block < last) {
        // All rows see the keys from last - kWindow on.
        const int pairs = (tile_sees - block) / kPairKeys;
        if (kOverlaps && block >= last - kWindow && pairs > 0) {
          add_seen_chunks(pages, pairs * kPairKeys);
          block += pairs * kPairKeys;
        } else {
          add_block(ctx, pages, block, q);
          block += S::kKeys;
        }
      }
    } else {
      if constexpr (kOverlaps) {
        if (tile_sees >= kPairKeys) {
          block = tile_sees / kPairKeys * kPairKeys;
          add_seen_chunks(pages, block);
        }
      }
      for (; block < last; block += S::kKeys) add_block(ctx, pages, block, q);
    }
    pages.finish();
    cta_sync();  // before the memory is reused for results
  }
};

}  // namespace maco::ops
