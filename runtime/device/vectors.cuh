// vectors.cuh: what ops that stream elements share: V elements at once, of any type.

namespace maco {

// V elements as a thread holds them, in words of at most 16 bytes.
template <class T, int V>
struct Elements {
  static constexpr int kWord = V * (int)sizeof(T) <= 16 ? V : 16 / (int)sizeof(T);
  Vec<T, kWord> words[V / kWord];

  // `p` is aligned to a word.
  MACO_FN void load(const T* p) {
    MACO_UNROLL
    for (int i = 0; i < V / kWord; ++i) words[i] = gload_vec<kWord>(p + i * kWord);
  }
  MACO_FN void store(T* p) const {
    MACO_UNROLL
    for (int i = 0; i < V / kWord; ++i) gstore_vec<kWord>(p + i * kWord, words[i]);
  }
  MACO_FN T get(int i) const { return words[i / kWord].v[i % kWord]; }
  MACO_FN void set(int i, T value) { words[i / kWord].v[i % kWord] = value; }
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
