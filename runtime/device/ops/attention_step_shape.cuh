// attention_step_shape.cuh: the rows and heads of a task of attention_step, and the keys that its
// rows see.

namespace maco::ops {

constexpr int kStepRows = 16;   // of a task, and the most new rows: those of a fragment
constexpr int kStepChunk = 16;  // keys of a block that a warp has
constexpr int kStepRound = 4;   // blocks

// e to the x, for x of at most 0. Rounding the product changes the result by about |x| units in the
// last place, which matters only for negligible weights.
MACO_FN float step_weight(float x) { return fexp2(fmul(x, 1.44269504f)); }

template <class Rows>
MACO_FN constexpr bool one_row() {
  if constexpr (Rows::is_constant) return Rows::value == 1;
  return false;
}

template <class C>
struct StepShape : HeadGroups<C> {
  using X = typename C::X;
  static constexpr int kKeys = kPageLines;            // of a block: each group has a page
  static constexpr int kRows = (int)(C::HB * C::BT);  // r: row r / HB of the tile, head r % HB
  // In the scratch memory: rows of the queries, of the new keys and of the new values.
  static constexpr int kAreaBytes = HeadGroups<C>::kGroups * kStepRows * kLineBytes;
  // Whether a row may not see an old key that another row sees.
  static constexpr bool kEdge = C::window > 0 && !one_row<typename C::rows>();
  static constexpr int kNorms = C::tabled ? 10 : C::by_radians ? 9 : 8;  // of norms
  static_assert(kRows <= kStepRows && 3 * kAreaBytes <= kScratchBytes, "the new rows have room");
};

// The keys that rows see, among some keys: row t of the tile sees those up to of(t), and with a
// window only from from(t) on.
struct Sight {
  int most;               // some row sees keys up to here
  int first, step, last;  // of(t): first + t * step, but at most `last`
  int moved;              // from(t): t + moved, at least 0
  MACO_FN int of(int t) const { return (int)least(first + t * step, last); }
  MACO_FN int from(int t) const { return (int)maco::most(t + moved, 0); }
};

}  // namespace maco::ops
