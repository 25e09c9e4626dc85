// The device intrinsics of device_mock.h, a twin of runtime/device/intrinsics but for products on
// tensor cores. A part of device_mock.h, which includes it.

#define MACO_FN inline
#define MACO_OP inline
#define MACO_UNROLL
#define MACO_ROLLED

namespace maco {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr int kConsumers = MOCK_CONSUMERS;
constexpr int kWarpLanes = MOCK_WARP_LANES;
constexpr int kWarps = kConsumers / kWarpLanes;
constexpr int kLoaders = 1;

inline int consumer_thread() { return device_fibres::thread(); }
inline int warp() { return consumer_thread() / kWarpLanes; }
inline int warp_lane() { return consumer_thread() % kWarpLanes; }
inline int task_thread() { return consumer_thread(); }
inline int loader_thread() { return 0; }
inline bool is_loader() { return false; }
inline bool is_signaller() { return false; }
constexpr int kSpareWarps = 0;
inline int spare_warp() { return 0; }
inline int cta_id() { return 0; }
inline char* cta_memory() { return device_fibres::memory(); }
inline void cta_sync() { device_fibres::barrier(0, kConsumers); }
inline bool cta_any(bool v) {
  static bool given[kConsumers];
  given[consumer_thread()] = v;
  cta_sync();
  const bool any = std::any_of(given, given + kConsumers, [](bool one) { return one; });
  cta_sync();
  return any;
}
inline void warp_sync() { device_fibres::barrier(1 + warp(), kWarpLanes); }
namespace mock {
template <class T>
T shuffle_from(T value, int from) {
  static T slots[kConsumers];
  slots[consumer_thread()] = value;
  warp_sync();
  const T got = slots[from];
  warp_sync();
  return got;
}
}  // namespace mock
inline bool warp_any(bool v) {
  int any = v;
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2)
    any |= mock::shuffle_from(any, consumer_thread() ^ mask);
  return any != 0;
}
inline float shuffle(float v, int lane) {
  return mock::shuffle_from(v, consumer_thread() / 32 * 32 + lane);
}
inline float shuffle_xor(float v, int mask) {
  return mock::shuffle_from(v, consumer_thread() ^ mask);
}
inline i32 shuffle_xor(i32 v, int mask) { return mock::shuffle_from(v, consumer_thread() ^ mask); }

inline float fexp(float x) { return std::exp(x); }
inline float flog(float x) { return std::log(x); }
inline float fsin(float x) { return std::sin(x); }
inline float fcos(float x) { return std::cos(x); }
inline float ferf(float x) { return std::erf(x); }
inline float fpow(float a, float b) { return std::pow(a, b); }
inline float fexp2(float x) { return std::exp2(x); }
inline float fmax(float a, float b) { return std::fmax(a, b); }
inline float ftanh(float x) { return std::tanh(x); }
inline void fsincospi(float x, float& sine, float& cosine) {
  sine = std::sin(x * 3.14159265f);
  cosine = std::cos(x * 3.14159265f);
}
inline float fnear_rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float fadd(float a, float b) { return a + b; }
inline float fsub(float a, float b) { return a - b; }
inline float fmul(float a, float b) { return a * b; }
inline float fdiv(float a, float b) { return a / b; }
inline float fsqrt(float x) { return std::sqrt(x); }
inline float finverse(float b) { return 1.0f / b; }
inline float ftop(float a, float b) { return a != a ? a : (a > b ? a : b); }
inline float warp_top(float value) {
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2)
    value = ftop(value, shuffle_xor(value, mask));
  return value;
}
inline float fratio(float a, float b) { return a / b; }
inline float ffma(float a, float b, float c) { return std::fma(a, b, c); }
inline void forget(float&) {}
inline void settle(u32&) {}
inline u32 bits_of(float x) {
  u32 r;
  std::memcpy(&r, &x, 4);
  return r;
}
inline float float_of(u32 x) {
  float r;
  std::memcpy(&r, &x, 4);
  return r;
}
constexpr bool kHasF16 = false;
constexpr bool kHasBf16 = false;
constexpr bool kHasF8 = false;
inline float f16_to_float(u16) { return 0; }
inline u16 float_to_f16(float) { return 0; }
inline u16 float_to_bf16(float) { return 0; }
inline float rounded_to_bf16(float) { return 0; }
inline u8 float_to_e4m3(float) { return 0; }
inline u8 float_to_e5m2(float) { return 0; }

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};
template <class T>
T gload(const T* p) {
  return *p;
}
template <class T>
void gstore(T* p, T v) {
  *p = v;
}
template <int N, class T>
Vec<T, N> gload_vec(const T* p) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Vec<T, N>) != 0)
    throw std::logic_error("unaligned vector load");
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
template <int N, class T>
void gstore_vec(T* p, Vec<T, N> v) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Vec<T, N>) != 0)
    throw std::logic_error("unaligned vector store");
  *reinterpret_cast<Vec<T, N>*>(p) = v;
}
template <class T>
T table_load(const T* p) {
  return *p;
}
inline u32 load_relaxed(const u32* p) { return *p; }
inline u32 load_relaxed_cta(const u32* p) { return *p; }
inline void store_relaxed(u32* p, u32 v) { *p = v; }
inline void store_release_sys(u32* p, u32 v) { *p = v; }
inline bool claim(u32* p) { return std::exchange(*p, 1u) == 0; }

template <class To, class From>
To bits_as(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
inline Vec<u32, 4> shared_load16(const void* p) { return *static_cast<const Vec<u32, 4>*>(p); }
inline void shared_store8(float* p, float first, float second) {
  p[0] = first;
  p[1] = second;
}

// Packets are there before they are looked at, or never.
namespace mock {
template <int N, class W>
void load_words(const W* p, W* to) {
  for (int i = 0; i < N; ++i) to[i] = p[i];
}
}  // namespace mock
template <int N>
void words_load(const u32* p, u32* to) {
  mock::load_words<N>(p, to);
}
template <int N>
void words_load(const u64* p, u64* to) {
  mock::load_words<N>(p, to);
}
inline void word_store(u32* p, u32 v) { *p = v; }
inline void word_store(u64* p, u64 v) { *p = v; }

inline void copy16(void* to, const void* from) {
  const char* page = device_fibres::pages().back();
  if (static_cast<char*>(to) < page || static_cast<char*>(to) + 16 > page + 16384 ||
      reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    throw std::logic_error("bad copy into a page");
  std::memcpy(to, from, 16);
}
inline void copy16_or_zero(void* to, const void* from, bool there) {
  if (there)
    copy16(to, from);
  else
    std::memset(to, 0, 16);
}
inline bool elected(int&) { return true; }
inline void prefetch(const void*) {}
template <class T>
inline void used_from_here(T&) {}
inline int warp_uniform(int value) { return value; }
inline void boxes_begin() {}
inline void operands_begin() {}

constexpr bool kProfile = false;
inline u64 sm_clock() { return 0; }
inline void clock_pair(u64& ns, u64& clock) { ns = clock = 0; }
inline void stamp_store(void*, u32, u32, u32, u32) {}

}  // namespace maco
