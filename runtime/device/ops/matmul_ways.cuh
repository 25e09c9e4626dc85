// matmul: the methods of matmul.cuh and matmul_tensor.cuh as one device function.

namespace maco::ops {

// Methods whose code may be a function of its own; asynchronous multiplications must be inlined.
template <class C, int kRows, bool kCores>
MACO_OP void matmul_alone(Context& ctx, Args args, u32 tile) {
  using P = MatmulPages<C, kRows, kCores>;
  if constexpr (kRows == 0) {
    matmul_many<C, P>(ctx, args, tile);
  } else if constexpr (kCores) {
    matmul_few_mma<C, P, kRows>(ctx, args, tile);
  } else if constexpr (C::transpose_b) {
    matmul_few_transposed<C, P, kRows>(ctx, args, tile);
  } else {
    matmul_few_plain<C, P, kRows>(ctx, args, tile);
  }
}
template <class C, int kRows, bool kCores>
MACO_OP void matmul_load_alone(Context& ctx, Args args, u32 tile) {
  if constexpr (kRows == 0 && (takes_wgmma(C::method) || C::blocks)) {
    matmul_boxes_load<C>(ctx, args, tile);
  } else if constexpr (kRows == 0 && takes_mma(C::method)) {
    matmul_tensor_load<C>(ctx, args, tile);
  } else {
    matmul_fill<C, MatmulPages<C, kRows, kCores>>(ctx, args, tile);
  }
}

// matmul_way calls this with the way that it has chosen.
template <class C>
struct MatmulLoad {
  Context& ctx;
  const Args& args;
  u32 tile;
  template <class Way>
  MACO_FN void operator()(Way) const {
    matmul_load_alone<C, Way::rows, Way::cores>(ctx, args, tile);
  }
};
template <class C>
struct MatmulCompute {
  Context& ctx;
  const Args& args;
  u32 tile;
  template <class Way>
  MACO_FN void operator()(Way) const {
    if constexpr (Way::rows == 0 && (takes_mma(C::method) || takes_wgmma(C::method) || C::blocks)) {
      matmul_tensor<C>(ctx, args, tile);
    } else {
      matmul_alone<C, Way::rows, Way::cores>(ctx, args, tile);
    }
  }
};

// A config with what the function's name says. kPaired: a second matrix behind b; kNormed: the
// weights of the norm of a's rows behind that; kPushed: slots behind y; kTurned: heads of y are
// rotated, by sines and cosines behind b; kAppended: caches behind y, which get its last columns;
// kHalved: mates have half of K each; kAdded: behind the slots what others have sent, and where the
// own result goes.
template <class Config, bool kPaired, bool kNormed, bool kPushed = false, bool kTurned = false,
          bool kAppended = false, bool kHalved = false, bool kAdded = false>
struct MatmulOf : Config {
  static constexpr bool paired = kPaired, normed = kNormed, pushed = kPushed, turned = kTurned,
                        appended = kAppended, halved = kHalved, added = kAdded, by_owner = kAdded;
  static constexpr int first_step = 0;
  static constexpr int kNorm = kPaired ? 3 : 2, kSines = 2;
  static constexpr int kY = 2 + (kPaired ? 1 : 0) + (kNormed || kTurned ? 1 : 0);
};
template <class C>
MACO_FN void matmul_by_way(Context& ctx, const Args& args, u32 tile) {
  if constexpr (C::in_line)
    matmul_line<C>(ctx, args, tile);
  else
    matmul_way<C>(ctx, MatmulCompute<C>{ctx, args, tile});
}
template <class C>
MACO_FN void matmul_load_by_way(Context& ctx, const Args& args, u32 tile) {
  if constexpr (C::in_line)
    matmul_line_load<C>(ctx, args, tile);
  else
    matmul_way<C>(ctx, MatmulLoad<C>{ctx, args, tile});
}

// Operands a [rows,K], b, (the other b), (the norm's weights [K]), y [rows,N], then whatever
// C::finish reads. C: X, W, Y, rows, plan_rows (of the op before rows were cut), few_rows (the most
// rows of dot), method, slice (columns of a slice of b), N, K, BM, BN, b_page_bytes, transpose_b,
// blocks (for method block: both operands come in boxes), for normed ones G and eps, and
// finish(args, row, col, sums): bias, activation and epilogue.
template <class C>
MACO_FN void matmul(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<MatmulOf<C, false, false>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<MatmulOf<C, false, false>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pair(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<MatmulOf<C, true, false>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pair_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<MatmulOf<C, true, false>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_normed(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<MatmulOf<C, false, true>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_normed_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<MatmulOf<C, false, true>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pair_normed(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<MatmulOf<C, true, true>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pair_normed_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<MatmulOf<C, true, true>>(ctx, args, tile);
}

}  // namespace maco::ops
