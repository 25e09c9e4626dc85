// The device intrinsics for unit tests: MOCK_CONSUMERS threads in warps of MOCK_WARP_LANES, each a
// fibre, so that barriers and shuffles mean what they mean on a GPU. Included inside a namespace of
// the test's own, once for each number of threads; the includes and the fibres are in
// device_fibres.h. Pages come from a queue that the loader fills before the consumers start.
//
// No include guard: see above.

#define MACO_FN inline
#define MACO_OP inline
#define MACO_UNROLL
#define MACO_ROLLED

#include "runtime/device/abi.cuh"

namespace maco {

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
template <class T>
T shuffle_from(T value, int from) {
  static T slots[kConsumers];
  slots[consumer_thread()] = value;
  warp_sync();
  const T got = slots[from];
  warp_sync();
  return got;
}
inline bool warp_any(bool v) {
  int any = v;
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2)
    any |= shuffle_from(any, consumer_thread() ^ mask);
  return any != 0;
}
inline float shuffle(float v, int lane) {
  return shuffle_from(v, consumer_thread() / 32 * 32 + lane);
}
inline float shuffle_xor(float v, int mask) { return shuffle_from(v, consumer_thread() ^ mask); }
inline i32 shuffle_xor(i32 v, int mask) { return shuffle_from(v, consumer_thread() ^ mask); }

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
constexpr bool kHasF16 = false, kHasBf16 = false, kHasF8 = false;
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

}  // namespace maco

namespace maco {
struct Cta {
  static constexpr int kHeadBytes = 65536, kScratchBytes = 49152, kPages = 1, kPageBytes = 16384;
  static constexpr int kPrepared = 0, kSignallers = 0, kWorld = 64;
  static constexpr bool kScouts = false;
};
constexpr int kSpareWarps = 0;
inline int spare_warp() { return 0; }
// The page size of the call that runs.
inline i64 mock_page_bytes = 0;
}  // namespace maco

#include "runtime/device/numbers.cuh"

namespace maco {
constexpr bool kProfile = false;
inline u64 sm_clock() { return 0; }
inline void clock_pair(u64& ns, u64& clock) { ns = clock = 0; }
inline void stamp_store(void*, u32, u32, u32, u32) {}
}  // namespace maco

#include "runtime/device/profile.cuh"

#include "runtime/device/context.cuh"

namespace maco {

template <class To, class From>
To bits_as(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Packets are there before they are looked at, or never.
template <int N, class W>
void words_load(const W* p, W* to) {
  for (int i = 0; i < N; ++i) to[i] = p[i];
}
template <class W>
void word_store(W* p, W v) {
  *p = v;
}
enum Patience : int { kPatienceLocal };
struct WatchState {
  explicit WatchState(int) {}
};
struct Watch {
  const void* word = nullptr;
  Watch(Context&, WatchState&, const void*, Patience, u32, u32, int) {}
  bool again() { throw std::logic_error("a packet that nobody sends"); }
  void give_up(u32, u32) {}
};
}  // namespace maco

#include "runtime/device/packets.cuh"

namespace maco {

// A fresh page holds bytes of NaNs: what was not copied shows up in results.
template <class T>
void page_copy(char* to, const T* from, i64 count) {
  const char* page = device_fibres::pages().back();
  if (to < page || to + static_cast<size_t>(count) * sizeof(T) > page + mock_page_bytes)
    throw std::logic_error("copy beyond the page");
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}
inline void copy16(char* to, const char* from) {
  const char* page = device_fibres::pages().back();
  if (to < page || to + 16 > page + 16384 || reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(from) % 16 != 0)
    throw std::logic_error("bad copy into a page");
  std::memcpy(to, from, 16);
}
inline void copy16_or_zero(void* to, const void* from, bool there) {
  if (there)
    copy16(static_cast<char*>(to), static_cast<const char*>(from));
  else
    std::memset(to, 0, 16);
}
struct PageFiller {
  Context& ctx;
  explicit PageFiller(Context& c) : ctx(c) {}
  char* acquire() { return device_fibres::pages().push(static_cast<size_t>(mock_page_bytes)); }
  void publish() {}
  u32 index = 0, slot = 0, round = 0;
  char* acquire_boxes(u32) { return acquire(); }
  template <int>
  bool await_free() {
    return true;
  }
  void expect_boxes(u32) {}
  void copy_box(char*, const TensorMap*, i64, i64, i64 = 0) {}
  void copy_run_box(char*, const TensorMap*, i64, i64, i64) {}
  void copy_rows(char*, const TensorMap*, i64, i64) {}
  void publish_boxes() {}
  char* page() const { return device_fibres::pages().back(); }
  void copy_line(char* to, const char* from, u32 bytes) { page_copy(to, from, bytes); }
  bool align_boxes(u32) { return true; }
  void skip(int) {}
  void finish(int = 0) {}
};
template <u32>
struct BoxFiller {
  PageFiller& filler;
  explicit BoxFiller(PageFiller& f) : filler(f) {}
  bool acquire(u32) { return filler.acquire() != nullptr; }
  void publish() {}
};
inline bool await_passed(Context&) { return true; }
inline bool elected(int&) { return true; }
inline void prefetch(const void*) {}
template <class T>
inline void used_from_here(T&) {}
inline int warp_uniform(int value) { return value; }
inline void boxes_begin() {}
inline void operands_begin() {}
constexpr u32 kRingPages = 3 << 18;
inline const char* page_wait(Context& ctx) {
  cta_sync();
  return device_fibres::pages().at(ctx.page_index++);
}
inline void page_release(Context&) { cta_sync(); }
struct PageUse {
  u32 slot, round;
  void next() { ++slot; }
  PageUse behind(u32 count) const { return {slot + count, 0}; }
};
struct PageTaker {
  Context& ctx;
  const char* const pages = device_fibres::pages().first();
  u32 index;
  explicit PageTaker(Context& c) : ctx(c), index(c.page_index) {}
  bool landed(int) const { return true; }
  void align(u32) {}
  void await(int) {}
  void await_some(int) {}
  PageUse next_page() const { return {index, 0}; }
  PageUse take_landed() { return {index++, 0}; }
  const char* take() { return device_fibres::pages().at(index++); }
  const char* take_awaited() { return take(); }
  const char* page(PageUse use) const { return device_fibres::pages().at(use.slot); }
  void release_together(int) {}
  void release() {}
  void release_page(PageUse) {}
  void finish() { ctx.page_index = index; }
};
inline Vec<u32, 4> shared_load16(const void* p) { return *static_cast<const Vec<u32, 4>*>(p); }
inline void shared_store8(float* p, float first, float second) {
  p[0] = first;
  p[1] = second;
}
constexpr bool kHasMma = kWarps > 1;
// What the lanes of a warp hold of 8 x 8 matrices, as PTX says of ldmatrix and mma.m16n8k16.
template <bool kTranspose>
void load_matrices(u32 (&to)[4], const void* line) {
  static const u16* lines[kConsumers];
  lines[consumer_thread()] = static_cast<const u16*>(line);
  warp_sync();
  const int lane = warp_lane(), first = consumer_thread() - lane;
  for (int m = 0; m < 4; ++m) {
    u16 pair[2];
    for (int e = 0; e < 2; ++e) {
      const int fast = lane % 4 * 2 + e, slow = lane / 4;
      pair[e] = kTranspose ? lines[first + m * 8 + fast][slow] : lines[first + m * 8 + slow][fast];
    }
    std::memcpy(&to[m], pair, 4);
  }
  warp_sync();
}
inline u32 transpose_matrix(u32 matrix) {
  static u32 rows[kConsumers];
  rows[consumer_thread()] = matrix;
  warp_sync();
  const int lane = warp_lane(), first = consumer_thread() - lane;
  u16 pair[2];
  for (int e = 0; e < 2; ++e) {
    const int row = lane % 4 * 2 + e, column = lane / 4;
    pair[e] = static_cast<u16>(rows[first + row * 4 + column / 2] >> (16 * (column % 2)));
  }
  warp_sync();
  u32 to;
  std::memcpy(&to, pair, 4);
  return to;
}
// d += a b, whose words have 4 / sizeof(T) elements each.
template <class T, class Bits>
void multiply_fragments(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  constexpr int kOf = 4 / static_cast<int>(sizeof(T)), kDeep = 8 * kOf;  // of a word; K
  static u32 held[kConsumers][6];
  const int lane = warp_lane(), first = consumer_thread() - lane;
  const u32 own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  std::memcpy(held[consumer_thread()], own, sizeof own);
  warp_sync();
  const auto element = [&](int thread, int word, int at) {
    return to_acc(T{static_cast<Bits>(held[first + thread][word] >> (32 / kOf * at))});
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
    for (int k = 0; k < kDeep; ++k) {
      const int lower = k % (kDeep / 2), upper = k / (kDeep / 2);
      d[i] += element(row % 8 * 4 + lower / kOf, row / 8 + upper * 2, k % kOf) *
              element(col * 4 + lower / kOf, 4 + upper, k % kOf);
    }
  }
  warp_sync();
}
template <bool kBf16>
void multiply_matrices(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  multiply_fragments<std::conditional_t<kBf16, bf16, f16>, u16>(d, a, b0, b1);
}
template <bool kE4m3>
void multiply_matrices_f8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  multiply_fragments<std::conditional_t<kE4m3, f8e4m3, f8e5m2>, u8>(d, a, b0, b1);
}

// Products of four warps: what each has of them, from lines of 128 bytes whose chunks change places
// by their address, as PTX says of wgmma and 128-byte swizzling. Operands count 16 bytes from a
// multiple of 2^33 on, which their three highest bits tell, and how many lines further the next 64
// rows are, across.
struct WgmmaLines {
  u64 memory;
  int next;
};
inline WgmmaLines wgmma_lines[8];
template <int kNext = 64>
u32 wgmma_operand(const void* lines) {
  const auto at = reinterpret_cast<u64>(lines);
  u32 which = 0;
  const auto other = [&](const WgmmaLines& l) {
    return l.next != 0 && (l.memory != at >> 33 || l.next != kNext);
  };
  while (which < 8 && other(wgmma_lines[which])) ++which;
  if (at % 1024 != 0 || which == 8)
    throw std::logic_error("lines of a product don't lie where they could");
  wgmma_lines[which] = {at >> 33, kNext};
  return static_cast<u32>(at >> 4 & 0x1fffffff) | which << 29;
}
inline void wgmma_begin() {}
inline void wgmma_end() {}
inline void wgmma_wait() {}
inline void forget(float&) {}
inline void settle(u32&) {}
// Elements k and k + 1 of row r.
template <bool kAcross>
u32 wgmma_pair(u32 operand, int r, int k) {
  u32 pair = 0;
  const WgmmaLines& lines = wgmma_lines[operand >> 29];
  for (int e = 0; e < 2; ++e) {
    const int line = kAcross ? r / 64 * lines.next + k + e : r, at = kAcross ? r % 64 : k + e;
    u32 unit = operand + static_cast<u32>(line * 8 + at / 8);
    unit ^= unit >> 3 & 7;
    const u64 place = lines.memory << 33 | static_cast<u64>(unit & 0x1fffffff) << 4;
    pair |= static_cast<u32>(reinterpret_cast<const u16*>(place)[at % 8]) << (16 * e);
  }
  return pair;
}
template <int kWide, bool kBf16, bool kAcross>
void wgmma_columns(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide) {
  const int k = warp_lane() % 4 * 2;
  for (int j = 0; j < kWide / 8; ++j) {
    const int column = j * 8 + warp_lane() / 4;
    multiply_matrices<kBf16>(d[j], tall, wgmma_pair<kAcross>(wide, column, k),
                             wgmma_pair<kAcross>(wide, column, k + 8));
  }
}
template <int kWide, bool kBf16, int kTallAcross, int kWideAcross>
void wgmma(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  const int row = warp() % 4 * 16 + warp_lane() / 4, k = warp_lane() % 4 * 2;
  u32 own[4];
  for (int i = 0; i < 4; ++i)
    own[i] = wgmma_pair<kTallAcross != 0>(tall, row + i % 2 * 8, k + i / 2 * 8);
  wgmma_columns<kWide, kBf16, kWideAcross != 0>(d, own, wide);
}
// Pairs of elements of 16 bits are fours of 8 bits.
template <int kWide, bool kE4m3>
void wgmma_f8(float (&d)[kWide / 8][4], u32 tall, u32 wide, bool more_sums) {
  const int row = warp() % 4 * 16 + warp_lane() / 4, k = warp_lane() % 4 * 2;
  u32 own[4];
  for (int i = 0; i < 4; ++i) own[i] = wgmma_pair<false>(tall, row + i % 2 * 8, k + i / 2 * 8);
  for (int j = 0; j < kWide / 8; ++j) {
    if (!more_sums)
      for (float& x : d[j]) x = 0;
    const int column = j * 8 + warp_lane() / 4;
    multiply_matrices_f8<kE4m3>(d[j], own, wgmma_pair<false>(wide, column, k),
                                wgmma_pair<false>(wide, column, k + 8));
  }
}
template <int kWide, bool kBf16>
void wgmma_new(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  for (auto& column : d)
    for (float& x : column) x = 0;
  wgmma<kWide, kBf16, 0, 0>(d, tall, wide);
}
template <int kWide, bool kBf16>
void wgmma_rows(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide) {
  wgmma_columns<kWide, kBf16, true>(d, tall, wide);
}

// Runs one tile: loader(ctx), then consumer(ctx) on all threads, with operands and launch values.
template <class Loader, class Consumer>
void run_tile(const std::vector<void*>& operands, const std::vector<i64>& values, int page_bytes,
              Loader loader, Consumer consumer) {
  std::vector<i32> all(values.begin(), values.end());
  all.resize(kMaxValues);
  device_fibres::reset(sizeof(CtaMemory));
  Context first(1, 0, 0);
  CtaLaunch& told = first.launch();
  told = {};
  told.all_values = all.data();
  std::copy_n(all.begin(), kStagedValues, told.values);
  first.memory()->stop = 0;
  mock_page_bytes = page_bytes;
  for (size_t i = 0; i < operands.size(); ++i)
    first.memory()->found[0].operands[i] = static_cast<char*>(operands[i]);
  loader(first);
  const u32 filled = static_cast<u32>(device_fibres::pages().size());
  u32 used = 0;
  device_fibres::run(kConsumers, [&] {
    Context ctx = first;
    ctx.page_index = 0;
    consumer(ctx);
    used = ctx.page_index;
  });
  if (filled != used)
    throw std::logic_error("loader and consumers disagree about the number of pages");
}

}  // namespace maco

#undef MACO_FN
#undef MACO_OP
#undef MACO_UNROLL
#undef MACO_ROLLED
