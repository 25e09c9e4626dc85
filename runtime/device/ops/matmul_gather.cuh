// matmul of rows that are one block for each rank: each rank begins with its own block, whose rows
// are there first, while the others' arrive, and goes on with the next rank's. C: as for matmul;
// ranks, T (tiles of a block).

namespace maco::ops {

template <class C, int kFirst = 0>
struct BlocksFrom {
  static MACO_FN u32 tile(const Context& ctx, u32 tile) {
    const int owner = (ctx.rank() + kFirst + int(tile / C::T)) % int(C::ranks);
    return (u32)owner * (u32)C::T + tile % (u32)C::T;
  }
};
template <class C>
using OwnRowsFirst = BlocksFrom<C>;

}  // namespace maco::ops
