// matmul of rows that are gathered, a block from each rank. It begins with this rank's block while
// the others' blocks arrive, and goes on with the next rank's. Operands and C as for matmul, or for
// a paired one; ranks, T (tiles of a block).

namespace maco::ops {

template <class C, bool kPaired>
struct GatheredProduct : MatmulOf<C, kPaired, false> {
  static constexpr bool by_owner = true;
};
template <class C>
MACO_FN void matmul_gathered(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<GatheredProduct<C, false>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_gathered_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<GatheredProduct<C, false>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pair_gathered(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<GatheredProduct<C, true>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_pair_gathered_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<GatheredProduct<C, true>>(ctx, args, tile);
}

}  // namespace maco::ops
