// rope: turns pairs of elements of each head by an angle that grows with the row's position. A tile
// is BR rows.

namespace maco::ops {

// The angle of a phase in units of 2^-64 turns, in [-pi, pi). Whole turns drop out of the integer
// exactly, so that a long context costs no accuracy.
MACO_FN float angle_of(u64 phase) {
  return fmul((float)(i32)(u32)(phase >> 32), 1.4629180792671596e-9f);
}

// Operands x [rows,H*D], (positions [rows] i32), y as x. C: X, Y, rows, H, D, BR, interleaved,
// from_positions, position (of row 0, unless from_positions), and turns(i): how far pair i turns
// from one position to the next, in units of 2^-64 turns.
template <class C>
MACO_OP void rope(Context& ctx, Args args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  constexpr i64 kPairs = C::D / 2, kCols = C::H * C::D;
  // A thread keeps its pair, and with it sine and cosine, for all heads that it does.
  constexpr i64 kHeadsAtOnce = most(1, kConsumers / kPairs);
  constexpr int kBatch =
      (int)least(kConsumers > 1 ? 8 : 1, (C::H + kHeadsAtOnce - 1) / kHeadsAtOnce);

  const i64 begin = (i64)tile * C::BR, end = least(begin + C::BR, C::rows::get(ctx));
  for (i64 r = begin; r < end; ++r) {
    i64 position;
    if constexpr (C::from_positions) {
      position = gload(args.ptr<const i32>(1) + r);
    } else {
      position = C::position::get(ctx) + r;
    }
    const X* x = args.ptr<const X>(0) + r * kCols;
    Y* y = args.ptr<Y>(C::from_positions ? 2 : 1) + r * kCols;
    for (i64 p = consumer_thread(); p < kPairs * kHeadsAtOnce; p += kConsumers) {
      const i64 pair = p % kPairs;
      const u64 turns = C::turns((int)pair);
      const i64 first = C::interleaved ? 2 * pair : pair,
                second = C::interleaved ? first + 1 : first + kPairs;
      float c = 0, s = 0;
      // All loads of a batch come before its stores, and those of the first before the sine.
      for (i64 h = p / kPairs; h < C::H; h += kBatch * kHeadsAtOnce) {
        float a[kBatch] = {}, b[kBatch] = {};
        MACO_UNROLL
        for (int i = 0; i < kBatch; ++i) {
          const i64 at = (h + i * kHeadsAtOnce) * C::D;
          if (h + i * kHeadsAtOnce < C::H)
            a[i] = to_acc(gload(x + at + first)), b[i] = to_acc(gload(x + at + second));
        }
        if (h < kHeadsAtOnce) {
          const float angle = angle_of((u64)position * turns);
          fsincos(angle, s, c);
        }
        MACO_UNROLL
        for (int i = 0; i < kBatch; ++i) {
          const i64 at = (h + i * kHeadsAtOnce) * C::D;
          if (h + i * kHeadsAtOnce < C::H) {
            gstore(y + at + first, from_acc<Y>(fsub(fmul(a[i], c), fmul(b[i], s))));
            gstore(y + at + second, from_acc<Y>(fadd(fmul(b[i], c), fmul(a[i], s))));
          }
        }
      }
    }
  }
}

}  // namespace maco::ops
