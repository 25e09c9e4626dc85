// Global and shared memory. In kernels compiled with MACO_CHECK_ACCESS the executor is told of each
// access.

namespace maco {

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};
template <class T>
MACO_FN T gload(const T* p) {
  host::touch(p, sizeof(T), false);
  return *p;
}
template <class T>
MACO_FN void gstore(T* p, T v) {
  host::touch(p, sizeof(T), true);
  *p = v;
}
template <int N, class T>
MACO_FN Vec<T, N> gload_vec(const T* p) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  host::touch_at_once(p, sizeof(Vec<T, N>), false);
  Vec<T, N> v;
  for (int i = 0; i < N; ++i) v.v[i] = p[i];
  return v;
}
template <int N, class T>
MACO_FN void gstore_vec(T* p, Vec<T, N> v) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  host::touch_at_once(p, sizeof(Vec<T, N>), true);
  for (int i = 0; i < N; ++i) p[i] = v.v[i];
}
template <class T>
MACO_FN void peer_store(T* p, T v) {
  gstore(p, v);
}
template <int N, class T>
MACO_FN void peer_store_vec(T* p, Vec<T, N> v) {
  gstore_vec<N>(p, v);
}
MACO_FN void prefetch(const void*) {}
MACO_FN void prefetch_near(const void*) {}
template <class T>
MACO_FN T table_load(const T* p) {
  static_assert(sizeof(T) == 16 || sizeof(T) == 8 || sizeof(T) == 4,
                "rows of tables are 4, 8 or 16 bytes");
  return *p;
}
template <class To, class From>
MACO_FN To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
template <class T>
MACO_FN void used_from_here(T&) {}
MACO_FN Vec<u32, 4> shared_load16(const void* p) { return *(const Vec<u32, 4>*)p; }
MACO_FN void shared_store8(float* p, float first, float second) {
  p[0] = first;
  p[1] = second;
}

}  // namespace maco
