// vectors.cuh: what ops that stream elements share: V elements at once, of any type.

namespace maco {

// V elements, for any V, in vectors of at most 16 bytes. kAhead: they are loaded while others are
// processed.
template <class T, int V, bool kAhead = false>
struct Elements {
  static constexpr int kVec = V * (int)sizeof(T) <= 16 ? V : 16 / (int)sizeof(T);
  using Vector = Vec<T, kVec>;
  using Held = typename Either<kAhead, HeldVec<T, kVec>, Vector>::type;
  Held vectors[V / kVec];

  // `p` is aligned to a vector.
  MACO_FN void load(const T* p) {
    MACO_UNROLL
    for (int i = 0; i < V / kVec; ++i) {
      if constexpr (kAhead) {
        vectors[i] = gload_held<kVec>(p + i * kVec);
      } else {
        vectors[i] = gload_vec<kVec>(p + i * kVec);
      }
    }
  }
  MACO_FN void store(T* p) const {
    MACO_UNROLL
    for (int i = 0; i < V / kVec; ++i) gstore_vec<kVec>(p + i * kVec, vector(i));
  }
  MACO_FN Vector vector(int i) const {
    if constexpr (kAhead) {
      return bits_as<Vector>(vectors[i]);
    } else {
      return vectors[i];
    }
  }
  MACO_FN T get(int i) const { return vector(i / kVec).v[i % kVec]; }
  MACO_FN void set(int i, T value) {
    static_assert(!kAhead, "what is loaded stays as it is");
    vectors[i / kVec].v[i % kVec] = value;
  }
};

template <class Y, class X, int V, bool kAhead>
MACO_FN auto convert(const Elements<X, V, kAhead>& x) {
  if constexpr (is_same<X, Y>) {
    return x;
  } else {
    Elements<Y, V> y;
    MACO_UNROLL
    for (int i = 0; i < V; ++i) y.set(i, convert<Y>(x.get(i)));
    return y;
  }
}

// A vector in shared memory, aligned to it.
template <int N, class T>
MACO_FN Vec<T, N> shared_raw(const T* p) {
  if constexpr (N * sizeof(T) == 16) {
    return bits_as<Vec<T, N>>(shared_load16(p));
  } else {
    return *(const Vec<T, N>*)p;
  }
}

// How many loads of `bytes` a thread has in flight, for operands that take so many bytes together:
// enough to keep memory busy with one CTA on each SM, and not more than registers hold.
MACO_FN constexpr int loads_ahead(int bytes) {
  return bytes <= 16 ? 8 : bytes <= 32 ? 4 : bytes <= 64 ? 2 : 1;
}

}  // namespace maco
