// attention_merge.cuh: merges what attention_step's splits of a cache made.

namespace maco::ops {

// The splits' results as a warp takes them: for one element of a head (a lane's) all values, and
// the largest scores and totals of every kWidth-th split, so that kWidth lanes together have all.
template <int kSplits, int kTotals>
struct FoundParts {
  static constexpr int kWidth = (int)least(power_above(kSplits), kWarpLanes);
  static constexpr int kOwn = (kSplits + kWidth - 1) / kWidth;
  float value[kSplits], top[kOwn], total[kOwn];
  static MACO_FN int own(int j) {
    return (int)least(warp_lane() % kWidth + j * kWidth, kSplits - 1);
  }
  // from(split): where the split's part of the head is. All loads are issued before the first
  // returns.
  template <class F>
  MACO_FN void load(Context&, const float*, F from, i64 d) {
    MACO_UNROLL
    for (int s = 0; s < kSplits; ++s) value[s] = gload(from(s) + d);
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      top[j] = gload(from(own(j)) + kTotals);
      total[j] = gload(from(own(j)) + kTotals + 1);
    }
  }
  template <class F>
  MACO_FN void load(Context& ctx, Received<float> parts, F from, i64 d) {
    PacketRun<float, 1> runs[kSplits + 2 * kOwn];
    receive_together(ctx, parts.operand, runs, [&](int i) {
      if (i < kSplits) return from(i) + d;
      const int j = i - kSplits;
      return from(own(j / 2)) + (kTotals + j % 2);
    });
    MACO_UNROLL
    for (int s = 0; s < kSplits; ++s) value[s] = runs[s].get(0);
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      top[j] = runs[kSplits + 2 * j].get(0);
      total[j] = runs[kSplits + 2 * j + 1].get(0);
    }
  }
  // The quotient of the sums of weighted values and of weights, added in the order of splits.
  MACO_FN float merged() {
    float high = kLeast, sum = 0, whole = 0;
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) high = fmax(high, top[j]);
    high = warp_top(high);
    MACO_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      top[j] = step_weight(fsub(top[j], high));
      total[j] = fmul(total[j], top[j]);
    }
    MACO_UNROLL
    for (int s = 0; s < kSplits; ++s) {
      const int j = s / kWidth, lane = s % kWidth;
      sum = fadd(sum, fmul(value[s], shuffle(top[j], lane)));
      whole = fadd(whole, shuffle(total[j], lane));
    }
    return fdiv(sum, whole);
  }
};

// Merges splits: HB heads of a row. Operands parts [rows, splits, HQ, D + 2]: sums of weighted
// values, the largest score, the sum of weights; y [rows,HQ*D]. C: Y, rows, HQ, HB, D, splits.
template <class C>
MACO_OP void attention_merge(Context& ctx, Args args, u32 tile) {
  using Y = typename C::Y;
  constexpr i64 kTasks = C::HQ / C::HB, kPart = C::D + 2;             // of a row
  constexpr int kRuns = (int)((C::D + kWarpLanes - 1) / kWarpLanes);  // of a head, for a warp each
  const i64 row = tile / kTasks, first = tile % kTasks * C::HB;
  if (row >= C::rows::get(ctx)) return;
  const auto parts =
      to_read<float, C::parts_packets>(args, 0) + (row * C::splits * C::HQ + first) * kPart;
  const auto y = to_write<Y, C::y_packets>(args, 1) + (row * C::HQ + first) * C::D;
  for (int run = warp(); run < C::HB * kRuns; run += kWarps) {
    const i64 head = run / kRuns, d = run % kRuns * kWarpLanes + warp_lane();
    FoundParts<(int)C::splits, (int)C::D> found;
    found.load(
        ctx, parts, [&](int s) { return parts + head * kPart + s * (C::HQ * kPart); },
        least(d, C::D - 1));
    const float result = found.merged();
    if (d < C::D) gstore(y + head * C::D + d, from_acc<Y>(result));
  }
}

}  // namespace maco::ops
