// matmul: the methods of matmul.cuh and matmul_tensor.cuh as one device function.

namespace maco::ops {

// Code that may be a function of its own; asynchronous multiplications must be inlined. kRows: the
// most rows of dot; 0: many rows.
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
  if constexpr (kRows == 0) {
    C::method::template load<C>(ctx, args, tile);
  } else {
    matmul_fill<C, MatmulPages<C, kRows, kCores>>(ctx, args, tile);
  }
}

// The methods of matmul.cuh; compiler/functions/matmul_methods.cpp lists them.
struct ByDot : AnyMethod {
  static constexpr bool kDot = true, kFewOnly = true;
};
struct ByBlock : AnyMethod {
  template <class C>
  static MACO_FN void load(Context& ctx, const Args& args, u32 tile) {
    if constexpr (C::blocks)
      matmul_boxes_load<C>(ctx, args, tile);
    else
      matmul_fill<C, MatmulPages<C, 0>>(ctx, args, tile);
  }
  template <class C>
  static MACO_FN void multiply(Context& ctx, const Args& args, u32 tile) {
    if constexpr (C::blocks)
      matmul_tensor<C>(ctx, args, tile);
    else
      matmul_alone<C, 0, false>(ctx, args, tile);
  }
};
struct ByMma : AnyMethod {
  static constexpr bool kTiles = true;
  template <class C>
  static MACO_FN void load(Context& ctx, const Args& args, u32 tile) {
    matmul_tensor_load<C>(ctx, args, tile);
  }
  template <class C>
  static MACO_FN void multiply(Context& ctx, const Args& args, u32 tile) {
    matmul_tensor<C>(ctx, args, tile);
  }
};
struct ByWgmma : ByMma {
  static constexpr bool kGroups = true;
  template <class C>
  static MACO_FN void load(Context& ctx, const Args& args, u32 tile) {
    matmul_boxes_load<C>(ctx, args, tile);
  }
};
// Dot or the other method, whichever suits the launch's rows.
struct ByRows : ByBlock {
  static constexpr bool kDot = true;
};
struct ByRowsMma : ByMma {
  static constexpr bool kDot = true;
};

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
    if constexpr (Way::rows == 0) {
      C::method::template multiply<C>(ctx, args, tile);
    } else {
      matmul_alone<C, Way::rows, Way::cores>(ctx, args, tile);
    }
  }
};

// Tasks that have half of K each (matmul_halve.cuh).
template <class C>
MACO_FN void matmul_halves(Context& ctx, const Args& args, u32 tile);
template <class C>
MACO_FN void matmul_halves_load(Context& ctx, const Args& args, u32 tile);

// Operands a [rows,K], b, y [rows,N], then whatever C::finish reads; stages have operands between
// these, which the config numbers: y_at, other_at. C: X, W, Y, rows, plan_rows (of the op before
// rows were cut), few_rows (the most rows of dot), method, slice (columns of a slice of b), N, K,
// BM, BN, b_page_bytes, transpose_b, blocks (for method block: both operands come in boxes), and
// finish(args, row, col, sums): bias, activation and epilogue. has_pair: operand other_at is a
// second matrix; has_halve: mates have half of K each. What other stages do fills slots: Rows (rows
// of a before they are multiplied), Turn (a tile's sums), Add, Target and Send (elements of the
// result), Order (of tiles).
template <class C>
MACO_FN void matmul(Context& ctx, const Args& args, u32 tile) {
  if constexpr (C::has_halve)
    matmul_halves<C>(ctx, args, tile);
  else if constexpr (C::in_line)
    matmul_line<C>(ctx, args, tile);
  else
    matmul_way<C>(ctx, MatmulCompute<C>{ctx, args, tile});
}
template <class C>
MACO_FN void matmul_load(Context& ctx, const Args& args, u32 tile) {
  if constexpr (C::has_halve)
    matmul_halves_load<C>(ctx, args, tile);
  else if constexpr (C::in_line)
    matmul_line_load<C>(ctx, args, tile);
  else
    matmul_way<C>(ctx, MatmulLoad<C>{ctx, args, tile});
}

}  // namespace maco::ops
