// attention_tile_shape.cuh: the rows, heads and keys of a task of attention_tile.

namespace maco::ops {

constexpr int kTileRows = 16;  // of a warp: those of a fragment
// The score of a key that a row doesn't see: less than any score that counts.
MACO_FN float unseen() { return float_of(0xff800000u); }

template <class C>
struct TileShape : HeadGroups<C> {
  using X = typename C::X;
  static constexpr int kRows = (int)(C::HB * C::BT);
  // Keys of a block, which has a page of keys and a page of values for each group.
  static constexpr int kKeys = kPageLines / HeadGroups<C>::kGroups;
  static constexpr bool kTwice = !is_same<X, typename C::Y>;  // whether weights have twice the bits
  // Softmax to base 2: 2^(kUnit * score). A negative scale would turn the largest score into the
  // smallest, so scores are first multiplied by it, as capped ones are.
  static constexpr double kLog2e = 1.4426950408889634;
  static constexpr bool kScaled = C::softcap > 0 || !((float)(C::scale * kLog2e) > 0);
  static constexpr float kUnit = (float)(kScaled ? kLog2e : C::scale * kLog2e);
  // A score equal to the one to which weights are relative has weight 2^kLift, and none more than
  // 2^(kLift + kSlack): f16 has few exponents below 1.
  static constexpr float kLift = is_same<X, f16> ? 12.0f : 0.0f;
  static constexpr float kSlack = is_same<X, f16> ? 3.0f : 8.0f;
  static MACO_FN float scaled(float score) {
    return kScaled ? near_score_of_product<C, !kTwice>(score) : score;
  }
  // The score to base 2.
  static MACO_FN float to_base2(float score) { return fmul(scaled(score), kUnit); }
  // The weight of a score to base 2, relative to `high`: for `high` itself exactly 2^kLift, however
  // large it is.
  static MACO_FN float weight(float score, float high) {
    return fexp2(fadd(fsub(score, high), kLift));
  }
  // The weight of a score to any base, by a factor and a summand. The summand is rounded like
  // `high`, the score to which weights are relative, to base 2. For `high` itself the weight is
  // nearly 2^kLift if is_small(high).
  static MACO_FN float weight(float score, float factor, float summand) {
    return fexp2(ffma(score, factor, summand));
  }
  // The top of a row that sees nothing: below every score, and finite to base 2.
  static constexpr float kNone = 0.5f * (kUnit > 1 ? kLeast / kUnit : kLeast);
  static MACO_FN bool is_small(float high) { return high > -4096.0f && high < 4096.0f; }
  static_assert(kKeys % 16 == 0, "blocks are whole steps");
};

// The rows, heads and keys of a task.
template <class C>
struct AttentionTile {
  i64 head, kv_head, first, rows, length, sees, last;
  MACO_FN AttentionTile(Context& ctx, u32 tile) {
    constexpr i64 kBlocks = C::HQ / C::HB;  // of heads
    head = tile % kBlocks * C::HB;
    kv_head = head / (C::HQ / C::HKV);
    first = (i64)(tile / kBlocks) * C::BT;
    const i64 all = C::rows::get(ctx);
    rows = least(C::BT, all - first);
    length = C::length::get(ctx);
    // Row t sees keys up to sees + t if causal, else all keys.
    sees = C::causal ? length - all + first + 1 : length;
    last = rows > 0 ? limit(rows - 1) : 0;
  }
  MACO_FN i64 limit(i64 t) const { return C::causal ? sees + t : length; }
  // The begin of the block with the first key that a row sees.
  MACO_FN i64 begin() const { return round_down(first_seen<C>(limit(0)), TileShape<C>::kKeys); }
};

}  // namespace maco::ops
