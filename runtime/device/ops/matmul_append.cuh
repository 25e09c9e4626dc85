// matmul whose last columns become rows of caches, as by kv_append.

namespace maco::ops {

// C: as for matmul, and append_at, the cache row for the result's first row; append_begin and
// append_next, the columns of the result at which the first cache's part and the second cache's
// part begin. A single cache is both operands cache_at and next_cache_at. Runs don't cross these
// columns, nor rows of tiles.
template <class C>
struct ToCaches {
  using Y = typename C::Y;
  static constexpr i64 kCols = C::append_next - C::append_begin, kNextCols = C::N - C::append_next;
  static_assert(!TensorShape<C>::kSwap, "a run lies in a row of the result");
  static constexpr i64 kRun = 16 / (i64)sizeof(Y) > 8 ? 16 / (i64)sizeof(Y) : 8;
  static_assert(C::append_begin % kRun == 0 && C::append_next % kRun == 0 && C::N % kRun == 0,
                "runs lie in one place, in whole vectors");
  const i64 first;  // of a cache's rows
  MACO_FN explicit ToCaches(const Context& ctx) : first(C::append_at::get(ctx)) {}
  template <class Place>
  MACO_FN Y* at(const Args& args, const MatmulTile<C>& t, const Place& place) const {
    const i64 row = t.row + place.row + place.more_rows, col = place.col + place.more_cols;
    if (col < C::append_begin) return args.ptr<Y>(C::y_at) + row * C::N + col;
    if (col < C::append_next)
      return args.ptr<Y>(C::cache_at) + (first + row) * kCols + (col - C::append_begin);
    return args.ptr<Y>(C::next_cache_at) + (first + row) * kNextCols + (col - C::append_next);
  }
};

}  // namespace maco::ops
