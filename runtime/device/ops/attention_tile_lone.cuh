// attention_tile_lone.cuh: the rows of a task for a lane that stands for all.

namespace maco::ops {

template <class C>
struct LoneRows {
  using S = TileShape<C>;
  using X = typename C::X;
  using Y = typename C::Y;
  static constexpr int kKeysOnce = (int)least(S::kKeys, 32);  // keys

  const AttentionTile<C>& t;
  float q[S::kRows][S::D], top[S::kRows], total[S::kRows] = {}, sum[S::kRows][S::D] = {};
  float score[S::kRows][kKeysOnce];

  MACO_FN explicit LoneRows(const AttentionTile<C>& tile) : t(tile) {
    for (float& x : top) x = kLeast;
  }
  MACO_FN int rows() const { return (int)(t.rows * C::HB); }
  // The place in a matrix [.., cols].
  MACO_FN i64 place(int r, i64 cols) const {
    return (t.first + r / C::HB) * cols + (t.head + r % C::HB) * C::D;
  }
  MACO_FN void load_queries(const X* from, char*) {
    for (int r = 0; r < rows(); ++r)
      for (int d = 0; d < S::D; d += kChunk) {
        const auto chunk = gload_vec<kChunk>(from + place(r, C::q_cols) + d);
        for (int i = 0; i < kChunk; ++i) q[r][d + i] = to_acc(chunk.v[i]);
      }
  }
  static MACO_FN void read_head(float (&to)[S::D], const char* page, int key) {
    for (int d = 0; d < S::D; d += kChunk) {
      const X* chunk =
          (const X*)(page + swizzled(d / kBlockK * S::kKeys + key, d % kBlockK / kChunk));
      for (int i = 0; i < kChunk; ++i) to[d + i] = to_acc(chunk[i]);
    }
  }
  // Adds some keys from `at` on, in the block that begins with key `begin`.
  MACO_FN void add_keys(const char* keys, const char* values, i64 begin, int at) {
    const int most = (int)least(t.last - begin - at, kKeysOnce);
    const auto seen = [&](int r) { return (int)least(t.limit(r / C::HB) - begin - at, most); };
    const auto hidden = [&](int r) {
      return (int)maco::most(first_seen<C>(t.limit(r / C::HB)) - begin - at, 0);
    };
    for (int j = 0; j < most; ++j) {
      float key[S::D];
      read_head(key, keys, at + j);
      for (int r = 0; r < rows(); ++r) {
        float part[kChunk] = {};
        for (int d = 0; d < S::D; d += kChunk)
          for (int i = 0; i < kChunk; ++i) part[i] = ffma(q[r][d + i], key[d + i], part[i]);
        float dot = 0;
        for (int i = 0; i < kChunk; ++i) dot = fadd(dot, part[i]);
        score[r][j] = S::to_base2(dot);
      }
    }
    for (int r = 0; r < rows(); ++r) {
      float high = kLeast;
      for (int j = hidden(r); j < seen(r); ++j) high = fmax(high, score[r][j]);
      high = fmax(high, top[r]);
      if (high != top[r]) {
        const float shrink = fexp2(fsub(top[r], high));
        top[r] = high;
        total[r] = fmul(total[r], shrink);
        for (int d = 0; d < S::D; ++d) sum[r][d] = fmul(sum[r][d], shrink);
      }
      float block = 0;
      for (int j = hidden(r); j < seen(r); ++j) {
        score[r][j] = S::weight(score[r][j], high);
        block = fadd(block, score[r][j]);
        if (!S::kTwice) score[r][j] = round_to<X>(score[r][j]);
      }
      total[r] = fadd(total[r], block);
    }
    for (int j = 0; j < most; ++j) {
      float value[S::D];
      read_head(value, values, at + j);
      for (int r = 0; r < rows(); ++r)
        if (j >= hidden(r) && j < seen(r))
          for (int d = 0; d < S::D; ++d) sum[r][d] = ffma(score[r][j], value[d], sum[r][d]);
    }
  }
  MACO_FN void run(Context& ctx, const X*) {
    PageTaker pages(ctx);
    for (i64 begin = t.begin(); begin < t.last; begin += S::kKeys) {
      const char* keys = pages.take();
      const char* values = pages.take();
      for (int at = 0; at < S::kKeys && begin + at < t.last; at += kKeysOnce)
        add_keys(keys, values, begin, at);
      pages.release();
      pages.release();
    }
    pages.finish();
  }
  MACO_FN void store(Y* y, char*) {
    for (int r = 0; r < rows(); ++r)
      for (int d = 0; d < S::D; ++d)
        gstore(y + place(r, C::HQ * C::D) + d,
               from_acc<Y>(t.limit(r / C::HB) > 0 ? fdiv(sum[r][d], total[r]) : 0.0f));
  }
};

}  // namespace maco::ops
