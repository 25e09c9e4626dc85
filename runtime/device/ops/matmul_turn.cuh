// matmul of queries, keys and values: some heads of the result are rotated, with the bits that rope
// would give them.

namespace maco::ops {

// C: as for matmul, and D, interleaved, turned_begin and turned_end (columns).
template <class C>
struct TurnHeads {
  using Y = typename C::Y;
  // Operand sines_at is the result of rope_sines.
  template <class Tile>
  static MACO_FN void turn(const Args& args, const MatmulTile<C>& t, Tile& tile) {
    static_assert(!TensorShape<C>::kSwap && MatmulTile<C>::kParts == 1 && !C::has_pair,
                  "a tile has rows of whole sums");
    if (t.end <= C::turned_begin || t.col >= C::turned_end) return;
    const float* sines = args.ptr<const float>(C::sines_at) + t.row * C::D;
    tile.template each_pair<(int)C::D, C::interleaved>(
        [&](int row, int pair) {
          return gload_vec<2>(sines + least(row, t.rows - 1) * C::D + 2 * pair);
        },
        [&](int head) { return t.col + head >= C::turned_begin && t.col + head < C::turned_end; },
        [&](const Vec<float, 2>& turn, float& a, float& b) {
          // Rounded as the tensor that rope would read.
          const float x = round_to<Y>(a), y = round_to<Y>(b);
          a = fsub(fmul(x, turn.v[1]), fmul(y, turn.v[0]));
          b = fadd(fmul(y, turn.v[1]), fmul(x, turn.v[0]));
        });
  }
};

}  // namespace maco::ops
