// elementwise.cuh: y = f(x0, x1, ...) element by element, for one op or for several fused ones.
//
// C: operands: Operands<...>, how each operand follows the result; Y; rows, N; BM x BN a tile; V
// elements at once; runs: a tile is
//    one run of elements (its vectors may cross rows); moves: y is x0, bit by bit; apply(v0, v1,
//    ...): an element, not yet rounded.
// Operands: x0, x1, ..., y. x may be y.

namespace maco {
namespace ops {

// Operands: one of the result's shape, one with an element for each column, one with a single
// element.
template <class T>
struct Full {
  using type = T;
  static constexpr int bytes = (int)sizeof(T);
  static MACO_FN i64 at(i64 element, i64) { return element; }
};
template <class T>
struct Column {
  using type = T;
  static constexpr int bytes = (int)sizeof(T);
  static MACO_FN i64 at(i64, i64 column) { return column; }
};
template <class T>
struct Single {
  using type = T;
  static constexpr int bytes = 0;
};
template <class... Os>
struct Operands {
  static constexpr int count = (int)sizeof...(Os);
  static constexpr int bytes = (0 + ... + Os::bytes);
};

// Where the operands from the I-th on are.
template <int I, class Os>
struct Sources;
template <int I>
struct Sources<I, Operands<>> {
  MACO_FN explicit Sources(const Args&) {}
};
template <int I, class O, class... Os>
struct Sources<I, Operands<O, Os...>> {
  const typename O::type* first;
  Sources<I + 1, Operands<Os...>> rest;
  MACO_FN explicit Sources(const Args& args) : first(args.ptr<typename O::type>(I)), rest(args) {}
};

// V elements of one operand.
template <int V, class O>
struct FetchedOperand {
  Elements<typename O::type, V, true> x;
  MACO_FN void load(const typename O::type* p, i64 element, i64 column) {
    x.load(p + O::at(element, column));
  }
  MACO_FN AccOf<typename O::type> get(int i) const { return to_acc(x.get(i)); }
};
template <int V, class T>
struct FetchedOperand<V, Single<T>> {
  T x;
  MACO_FN void load(const T* p, i64, i64) { x = gload(p); }
  MACO_FN AccOf<T> get(int) const { return to_acc(x); }
};
// V elements of all operands.
template <int V, class Os>
struct Fetched;
template <int V>
struct Fetched<V, Operands<>> {
  template <int I>
  MACO_FN void load(const Sources<I, Operands<>>&, i64, i64) {}
  template <class C, class... A>
  MACO_FN auto apply(int, A... a) const {
    return C::apply(a...);
  }
};
template <int V, class O, class... Os>
struct Fetched<V, Operands<O, Os...>> {
  FetchedOperand<V, O> first;
  Fetched<V, Operands<Os...>> rest;
  template <int I>
  MACO_FN void load(const Sources<I, Operands<O, Os...>>& from, i64 element, i64 column) {
    first.load(from.first, element, column);
    rest.load(from.rest, element, column);
  }
  // C::apply of element i of every operand.
  template <class C, class... A>
  MACO_FN auto apply(int i, A... a) const {
    return rest.template apply<C>(i, a..., first.get(i));
  }
};

// The part of a tile that exists at launch: from element `first` on, in rows of `across` vectors,
// or in one run (0).
struct ElementwiseTile {
  i64 first, column;
  u32 across;
};

// Vectors i, i + kConsumers, ... of the tile, U of them. The last vector replaces those that aren't
// below `vectors`.
template <class C, int V, int U>
struct ElementwiseBatch {
  Fetched<V, typename C::operands> x[U];
  // Counted from the tile's first element.
  using Offset = typename Either<(C::BM * C::N >= (i64)1 << 32), i64, u32>::type;
  Offset element[U];

  MACO_FN void load(const Sources<0, typename C::operands>& from, const ElementwiseTile& t, u32 i,
                    u32 vectors) {
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      const u32 at = i + (u32)(u * kConsumers), n = at < vectors ? at : vectors - 1;
      const u32 row = t.across == 0 ? 0 : n / t.across;
      const u32 column = (n - row * t.across) * V;
      element[u] = (Offset)row * (Offset)C::N + column;
      x[u].load(from, t.first + element[u], t.column + column);
    }
  }
  MACO_FN void store(typename C::Y* y, u32 i, u32 vectors) const {
    MACO_UNROLL
    for (int u = 0; u < U; ++u) {
      if (i + (u32)(u * kConsumers) >= vectors) continue;
      if constexpr (C::moves) {
        x[u].first.x.store(y + element[u]);
      } else {
        Elements<typename C::Y, V> result;
        MACO_UNROLL
        for (int v = 0; v < V; ++v)
          result.set(v, from_acc<typename C::Y>(x[u].template apply<C>(v)));
        result.store(y + element[u]);
      }
    }
  }
};
// Computes the tile's `vectors` of V elements. A thread reads its share of a batch before it writes
// any of it, and reads no element twice: y may be one of the operands.
template <class C, int V, int kAtOnce>
MACO_FN void elementwise_vectors(const Sources<0, typename C::operands>& from, typename C::Y* y,
                                 const ElementwiseTile& t, u32 vectors) {
  constexpr i64 kShare = (C::BM * C::BN / V + kConsumers - 1) / kConsumers;  // a thread's, at most
  constexpr int U = (int)(kShare < kAtOnce ? (kShare < 1 ? 1 : kShare) : kAtOnce);
  using Batch = ElementwiseBatch<C, V, U>;
  each_ahead<Batch, (kShare + U - 1) / U>(
      (u32)consumer_thread(), vectors, (u32)(U * kConsumers),
      [&](Batch& batch, u32 i) { batch.load(from, t, i, vectors); },
      [&](const Batch& batch, u32 i) { batch.store(y + t.first, i, vectors); });
}

template <class C>
MACO_OP void elementwise(Context& ctx, Args args, u32 tile) {
  constexpr i64 across = (C::N + C::BN - 1) / C::BN;
  constexpr int kRead = C::operands::bytes, kWritten = (int)sizeof(typename C::Y);
  constexpr int V = (int)C::V, U = loads_ahead(V * (kRead > kWritten ? kRead : kWritten));
  const i64 r0 = tile / across * C::BM, c0 = tile % across * C::BN;
  const i64 left = C::rows::get(ctx) - r0;
  if (left <= 0) return;
  const i64 rows = left < C::BM ? left : C::BM;
  const i64 columns = C::N % C::BN == 0 || C::N - c0 > C::BN ? C::BN : C::N - c0;
  const Sources<0, typename C::operands> from(args);
  typename C::Y* y = args.ptr<typename C::Y>(C::operands::count);

  const ElementwiseTile t = {r0 * C::N + c0, c0, C::runs ? 0 : (u32)(columns / V)};
  const u32 vectors = (u32)(rows * columns / V);
  elementwise_vectors<C, V, U>(from, y, t, vectors);
  if constexpr (C::runs && V > 1) {
    // The rest of a run behind its whole vectors.
    const u32 done = vectors * V;
    elementwise_vectors<C, 1, 1>(from, y, {t.first + done, 0, 0}, (u32)(rows * columns) - done);
  }
}

}  // namespace ops
}  // namespace maco
