// matmul of queries, keys and values: some heads of the result turn, with the bits that rope would
// give them.

namespace maco::ops {

// C: as of matmul, and D, interleaved, turned_begin and turned_end (columns), position (of row 0)
// and turns, as of rope.
template <class C>
struct HeadTurner {
  // As the result that rope would read.
  static MACO_FN float rounded(float sum) { return to_acc(from_acc<typename C::Y>(sum)); }
  template <class Tile>
  static MACO_FN void turn(Context& ctx, const MatmulTile<C>& t, Tile& tile) {
    static_assert(!TensorShape<C>::kSwap && MatmulTile<C>::kParts == 1 && !C::paired,
                  "a tile has rows of whole sums");
    if (t.end <= C::turned_begin || t.col >= C::turned_end) return;
    struct Turn {
      float sine, cosine;
    };
    const i64 first = C::position::get(ctx) + t.row;
    tile.template each_pair<(int)C::D, C::interleaved>(
        [&](int row, int pair) {
          Turn turn;
          sines_of((u64)(first + row) * C::turns(pair), turn.sine, turn.cosine);
          return turn;
        },
        [&](const Turn& turn, int head, float& a, float& b) {
          if (t.col + head < C::turned_begin || t.col + head >= C::turned_end) return;
          const float x = rounded(a), y = rounded(b);
          a = fsub(fmul(x, turn.cosine), fmul(y, turn.sine));
          b = fadd(fmul(y, turn.cosine), fmul(x, turn.sine));
        });
  }
};

// Operands as of matmul.
template <class C>
MACO_FN void matmul_turned(Context& ctx, const Args& args, u32 tile) {
  matmul_by_way<MatmulOf<C, false, false, false, true>>(ctx, args, tile);
}
template <class C>
MACO_FN void matmul_turned_load(Context& ctx, const Args& args, u32 tile) {
  matmul_load_by_way<MatmulOf<C, false, false, false, true>>(ctx, args, tile);
}

}  // namespace maco::ops
