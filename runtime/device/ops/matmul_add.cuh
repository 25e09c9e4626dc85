// matmul that adds up what other ranks' matmuls have sent for its tiles, and sends the sums
// (matmul_send.cuh): the end of an allreduce whose operand it makes.
//
// Operands a, b, y, slots of the sums, slots of what others have sent, the matmul's own result,
// then whatever C::finish reads. C: as for stage send in mode `others`, where the T tiles are
// those of this rank's block of rows; reduce.

namespace maco::ops {

template <class C>
struct AddParts {
  using Y = typename C::Y;
  static constexpr bool kAdds = true;
  static constexpr int kOthers = int(C::ranks) - 1;
  // As in combine: in f32, in the order of ranks.
  struct Sum {
    static constexpr Reduction reduce = C::reduce;
    static constexpr i64 W = C::ranks;
  };
  static constexpr i64 kSource = C::T * C::stride;  // elements from rank to rank
  const Y* parts;                                   // where the tile begins in what rank 0 sent
  Y* own;
  const int rank;

  MACO_FN AddParts(Context& ctx, const Args& args, u32 tile)
      : parts(args.template ptr<const Y>(C::parts_at) + i64(tile) * C::stride),
        own(args.template ptr<Y>(C::own_at)),
        rank(ctx.rank()) {}

  // The other ranks' parts.
  template <int V>
  struct Parts {
    Vec<Y, V> of[kOthers];
  };
  // Loads V adjacent elements, at a row of the tile and a column of the result.
  template <int V>
  MACO_FN void fetch(const MatmulTile<C>& t, i64 row, i64 col, Parts<V>& to) const {
    const Y* const at = parts + row * (t.end - t.col) + (col - t.col);
    MACO_UNROLL
    for (int p = 0; p < kOthers; ++p) to.of[p] = gload_vec<V>(at + (p + (p >= rank)) * kSource);
  }
  // Turns `v`, this rank's elements at `element` of the result, into the sums over all ranks.
  template <int V>
  MACO_FN void add(const Parts<V>& others, i64 element, Vec<Y, V>& v) const {
    gstore_vec<V>(own + element, v);
    MACO_UNROLL
    for (int e = 0; e < V; ++e) {
      AccOf<Y> sum = {};
      MACO_UNROLL
      for (int s = 0; s <= kOthers; ++s) {
        Y one = v.v[e];
        if (s < kOthers) one = s < rank ? others.of[s].v[e] : one;
        if (s > 0) one = s > rank ? others.of[s - 1].v[e] : one;
        const AccOf<Y> x = to_acc(one);
        sum = s == 0 ? x : reduce_step<Sum>(sum, x);
      }
      v.v[e] = from_acc<Y>(reduce_end<Sum>(sum));
    }
  }
};

}  // namespace maco::ops
