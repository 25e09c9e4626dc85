// vectors.cuh: what ops that stream elements share: V elements at once, of any type.

namespace maco {

// V elements, of any V, in vectors of at most 16 bytes (HeldVec).
template <class T, int V>
struct Elements {
  static constexpr int kVec = V * (int)sizeof(T) <= 16 ? V : 16 / (int)sizeof(T);
  HeldVec<T, kVec> vectors[V / kVec];

  // `p` is aligned to a vector.
  MACO_FN void load(const T* p) {
    MACO_UNROLL
    for (int i = 0; i < V / kVec; ++i) vectors[i] = gload_held<kVec>(p + i * kVec);
  }
  MACO_FN void store(T* p) const {
    MACO_UNROLL
    for (int i = 0; i < V / kVec; ++i)
      gstore_vec<kVec>(p + i * kVec, bits_as<Vec<T, kVec>>(vectors[i]));
  }
  MACO_FN T get(int i) const { return bits_as<Vec<T, kVec>>(vectors[i / kVec]).v[i % kVec]; }
  MACO_FN void set(int i, T value) {
    Vec<T, kVec> vector = bits_as<Vec<T, kVec>>(vectors[i / kVec]);
    vector.v[i % kVec] = value;
    vectors[i / kVec] = bits_as<HeldVec<T, kVec>>(vector);
  }
};

template <class Y, class X, int V>
MACO_FN Elements<Y, V> convert(const Elements<X, V>& x) {
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

// How many loads of `bytes` a thread has under way at once, of operands that take that much
// together: enough to keep memory busy with one CTA an SM, not more than registers hold.
MACO_FN constexpr int loads_ahead(int bytes) {
  return bytes <= 16 ? 8 : bytes <= 32 ? 4 : bytes <= 64 ? 2 : 1;
}

}  // namespace maco
