// attention_scores: which keys a row sees, and how the product of a query and a key becomes a
// score; the same for all methods. C: scale, softcap (0: none), window (0: rows see all keys before
// them).

namespace maco::ops {

// The first key that a row sees, if it sees keys before `limit`.
template <class C>
MACO_FN i64 first_seen(i64 limit) {
  return C::window > 0 ? most(limit - C::window, 0) : 0;
}

// The score from the product of a query and a key.
template <class C>
MACO_FN float score_of_product(float product) {
  if constexpr (C::softcap > 0) {
    const float part = fmul(product, (float)(C::scale / C::softcap));
    return fmul(ftanh(part), (float)C::softcap);
  } else {
    return fmul(product, (float)C::scale);
  }
}

// The same, if it is capped within 2^-19 of itself. kRough, for results of at most 16 bits: within
// 2^-21 of the cap, unless the cap is large.
template <class C, bool kRough>
MACO_FN float near_score_of_product(float product) {
  if constexpr (C::softcap > 0) {
    // With y = score / cap, tanh y is 1 - 2 / (1 + 2^x); for a large x the quotient is 0.
    constexpr double kCap = C::softcap, kUnit = 2 * 1.4426950408889634;  // x of y
    const float x = fmul(product, (float)(C::scale / kCap * kUnit));
    const float ratio = fratio(1.0f, fadd(fexp2(x), 1.0f));
    const float far = ffma((float)(-2 * kCap), ratio, (float)kCap);
    if constexpr (kRough && kCap <= 64) return far;
    // For a small y, tanh y is y - y^3 / 3 + 2 y^5 / 15.
    constexpr double kThird = kUnit * kUnit * kUnit, kFifth = kThird * kUnit * kUnit;
    const float square = fmul(x, x);
    float near = ffma(square, (float)(kCap * 2 / 15 / kFifth), (float)(-kCap / 3 / kThird));
    near = fmul(x, ffma(square, near, (float)(kCap / kUnit)));
    return fn::magnitude(x) < 0.45f ? near : far;
  } else {
    return fmul(product, (float)C::scale);
  }
}

}  // namespace maco::ops
