// matmul of rows that ranks gather, a block of each: it begins with this rank's, while the others'
// are on their way, and goes on with those of the next rank. Operands and C as of matmul, or of a
// pair; ranks, T (tiles of a block).

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
