// What the machine provides, on a host: runtime/device/intrinsics.cuh provides the same for a GPU,
// and documents each function. Included before kernel.cu. A context is a warp role of one thread,
// so that barriers and votes do nothing. The executor is told where contexts wait and signal.

#define MACO_CPU 1

#include "cpu_context.h"

// From the C library. Including <cmath> would take a fifth of a small kernel's compile time.
extern "C" void sincosf(float x, float* sine, float* cosine) noexcept;
// Under other names: if compilers see the sine and cosine of one number, they merge the two calls.
extern "C" float maco_sinf(float x) noexcept __asm__("sinf");
extern "C" float maco_cosf(float x) noexcept __asm__("cosf");

#define MACO_FN inline
#define MACO_OP inline
#define MACO_TABLE
#define MACO_KERNEL extern "C" __attribute__((visibility("default"))) void
#define MACO_PAIRS
#define MACO_PARAM const
#define MACO_UNROLL
#define MACO_ROLLED

#ifndef MACO_CPU_ENTER
#define MACO_CPU_ENTER
namespace maco_cpu {
// The context that this thread runs. An executor with fibres changes it while functions that call
// the executor run; these restore it.
static thread_local RoleContext* current = nullptr;
}  // namespace maco_cpu
extern "C" __attribute__((visibility("default"))) void maco_cpu_enter(
    maco_cpu::RoleContext* context) {
  maco_cpu::current = context;
}
extern "C" __attribute__((visibility("default"))) int maco_cpu_interface() {
  return maco_cpu::kInterface;
}
#endif

namespace maco {

struct TensorMap;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

// ---- who runs ---------------------------------------------------------------

constexpr int kConsumers = 1;
constexpr int kWarpLanes = 1;
constexpr int kWarps = 1;
constexpr int kLoaders = 1;

MACO_FN int consumer_thread() { return 0; }
MACO_FN int warp() { return 0; }
MACO_FN int warp_lane() { return 0; }
MACO_FN int task_thread() { return 0; }
MACO_FN int loader_thread() { return 0; }
MACO_FN bool is_loader() { return maco_cpu::current->role != 0; }
MACO_FN bool loader_scouts() { return maco_cpu::current->scouts; }
MACO_FN bool is_signaller() { return maco_cpu::current->role == 2; }
MACO_FN bool is_spare() { return false; }
constexpr int kSpareWarps = 0;
MACO_FN int spare_warp() { return 0; }
MACO_FN int cta_id() { return maco_cpu::current->cta; }
MACO_FN int grid_thread() { return 0; }
MACO_FN int grid_threads() { return 1; }
MACO_FN char* cta_memory() { return maco_cpu::current->memory; }

// ---- barriers, votes, shuffles ----------------------------------------------

MACO_FN void cta_sync() {}
MACO_FN bool cta_any(bool value) { return value; }
MACO_FN void warp_sync() {}
MACO_FN bool warp_any(bool value) { return value; }
MACO_FN bool initializes() { return false; }  // shared memory comes as zeros
MACO_FN void start_sync() {}
MACO_FN void follow_launch() {}
MACO_FN void lead_launch() {}
template <int kRegisters>
MACO_FN void take_registers() {}
template <int kRegisters>
MACO_FN void give_registers() {}
MACO_FN float shuffle(float value, int) { return value; }
MACO_FN float shuffle_xor(float value, int) { return value; }
MACO_FN i32 shuffle_xor(i32 value, int) { return value; }

// ---- arithmetic -------------------------------------------------------------

MACO_FN float fexp(float x) { return __builtin_expf(x); }
MACO_FN float flog(float x) { return __builtin_logf(x); }
MACO_FN float fsin(float x) { return ::maco_sinf(x); }
MACO_FN float fcos(float x) { return ::maco_cosf(x); }
MACO_FN float ferf(float x) { return __builtin_erff(x); }
MACO_FN float fpow(float a, float b) { return __builtin_powf(a, b); }
MACO_FN float fexp2(float x) { return __builtin_exp2f(x); }
MACO_FN float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
MACO_FN float ftanh(float x) { return __builtin_tanhf(x); }
// Both come from one function: compilers merge two calls where they see both, with other bits.
MACO_FN void fsincospi(float x, float& sine, float& cosine) {
  ::sincosf(x * 3.14159265f, &sine, &cosine);
}
MACO_FN float fnear_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
// Kernels are compiled with -ffp-contract=off.
MACO_FN float fadd(float a, float b) { return a + b; }
MACO_FN float fsub(float a, float b) { return a - b; }
MACO_FN float fmul(float a, float b) { return a * b; }
MACO_FN float fdiv(float a, float b) { return a / b; }
MACO_FN float fsqrt(float x) { return __builtin_sqrtf(x); }
MACO_FN float finverse(float b) { return 1.0f / b; }
MACO_FN float ftop(float a, float b) { return a != a ? a : (a > b ? a : b); }
MACO_FN float warp_top(float value) { return value; }
MACO_FN float fratio(float a, float b) { return a / b; }
MACO_FN float ffma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MACO_FN u32 bits_of(float x) {
  u32 r;
  std::memcpy(&r, &x, 4);
  return r;
}
MACO_FN float float_of(u32 x) {
  float r;
  std::memcpy(&r, &x, 4);
  return r;
}

// ---- conversions: numbers.cuh does them by bits -----------------------------

constexpr bool kHasF16 = false;
constexpr bool kHasBf16 = false;
constexpr bool kHasF8 = false;
MACO_FN float f16_to_float(u16) { return 0.0f; }
MACO_FN u16 float_to_f16(float) { return 0; }
MACO_FN u16 float_to_bf16(float) { return 0; }
MACO_FN float rounded_to_bf16(float) { return 0; }
MACO_FN u8 float_to_e4m3(float) { return 0; }
MACO_FN u8 float_to_e5m2(float) { return 0; }

// ---- calls of the executor --------------------------------------------------

namespace host {
inline void changing(const void* word) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->changing(self, word);
  maco_cpu::current = self;
}
inline void changed(const void* word) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->changed(self, word);
  maco_cpu::current = self;
}
inline void touch(const void* address, u64 bytes, bool writes) {
#ifdef MACO_CHECK_ACCESS
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->access(self, address, bytes, writes);
#else
  (void)address, (void)bytes, (void)writes;
#endif
}
// An access of a power of two of bytes. A GPU stops if their address isn't a multiple of that.
inline void touch_at_once(const void* address, u64 bytes, bool writes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) __builtin_trap();
  touch(address, bytes, writes);
}
}  // namespace host

// ---- global memory ----------------------------------------------------------

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
template <class T>
MACO_FN T table_load(const T* p) {
  static_assert(sizeof(T) == 16 || sizeof(T) == 8 || sizeof(T) == 4,
                "rows of tables are 4, 8 or 16 bytes");
  return *p;
}

// ---- flags ------------------------------------------------------------------

MACO_FN u32 load_acquire_gpu(const u32* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
MACO_FN u32 load_acquire_sys(const u32* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
MACO_FN u32 load_acquire_cta(const u32* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
MACO_FN u32 load_relaxed(const u32* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
MACO_FN u32 load_relaxed_cta(const u32* p) { return load_relaxed(p); }
MACO_FN void add_release_gpu(u32* p, u32 v) {
  host::changing(p);
  __atomic_fetch_add(p, v, __ATOMIC_RELEASE);
  host::changed(p);
}
MACO_FN void add_release_sys(u32* p, u32 v) { add_release_gpu(p, v); }
MACO_FN void store_release_sys(u32* p, u32 v) {
  host::changing(p);
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
  host::changed(p);
}
MACO_FN void store_release_cta(u32* p, u32 v) { store_release_sys(p, v); }
MACO_FN void store_relaxed(u32* p, u32 v) {
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
  host::changed(p);
}
MACO_FN void add_relaxed(u32* p, u32 v) {
  host::changing(p);
  __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  host::changed(p);
}
MACO_FN bool claim(u32* p) {
  u32 expected = 0;
  return __atomic_compare_exchange_n(p, &expected, 1u, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

MACO_FN void packet_store(u64* slot, u32 data, u32 flag) {
  host::touch(slot, 8, true);
  host::changing(slot);
  __atomic_store_n(slot, ((u64)flag << 32) | data, __ATOMIC_RELAXED);
  host::changed(slot);
}
MACO_FN u64 packet_load(const u64* slot) {
  host::touch(slot, 8, false);
  return __atomic_load_n(slot, __ATOMIC_RELAXED);
}

MACO_FN void packet_pair_store(u64* slot, u32 first, u32 second, u32 flag) {
  packet_store(slot, first, flag);
  packet_store(slot + 1, second, flag);
}
MACO_FN void packet_pair_load(const u64* slot, u64& first, u64& second) {
  first = packet_load(slot);
  second = packet_load(slot + 1);
}

template <int N, class W>
MACO_FN void words_load(const W* p, W* to) {
  host::touch(p, N * sizeof(W), false);
  for (int i = 0; i < N; ++i) to[i] = __atomic_load_n(p + i, __ATOMIC_RELAXED);
}
template <class W>
MACO_FN void word_store(W* p, W v) {
  host::touch(p, sizeof(W), true);
  host::changing(p);
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
  host::changed(p);
}

// ---- the other CTA of a pair -------------------------------------------------

namespace host {
template <class T>
T* of_mate(T* p) {
  return (T*)(maco_cpu::current->mate_memory + ((char*)p - maco_cpu::current->memory));
}
}  // namespace host
MACO_FN u32 mate_load(const u32* p) { return load_relaxed(host::of_mate(p)); }
MACO_FN void mate_store(u32* p, u32 v) { store_release_cta(host::of_mate(p), v); }
constexpr bool kCountsSent = false;
MACO_FN void mate_send16(void* to, const Vec<u32, 4>& v, u64*) {
  std::memcpy(host::of_mate((char*)to), &v, 16);
}
MACO_FN void pair_sync() {}

// ---- waiting ----------------------------------------------------------------

MACO_FN u64 now_ns() { return maco_cpu::current->now(maco_cpu::current); }
MACO_FN void pause_for(const void* word, u32 spins) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->pause(self, word, spins);
  maco_cpu::current = self;
}
constexpr u32 kSpinsPerLook = 1, kSpinsAwake = 0;

// ---- the loader's copies ----------------------------------------------------

MACO_FN void copy16(void* to, const void* from) {
  host::touch_at_once(from, 16, false);
  std::memcpy(to, from, 16);
}
MACO_FN void copy16_or_zero(void* to, const void* from, bool there) {
  if (there)
    copy16(to, from);
  else
    std::memset(to, 0, 16);
}
template <class To, class From>
MACO_FN To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
MACO_FN Vec<u32, 4> shared_load16(const void* p) { return *(const Vec<u32, 4>*)p; }
MACO_FN void shared_store8(float* p, float first, float second) {
  p[0] = first;
  p[1] = second;
}
template <class T>
inline void used_from_here(T&) {}
MACO_FN int warp_uniform(int value) { return value; }
MACO_FN void prefetch(const void*) {}
MACO_FN void prefetch_near(const void*) {}
MACO_FN int shuffle(int value, int) { return value; }
MACO_FN bool elected(int& lane) {
  lane = 0;
  return true;
}
MACO_FN void map_begin(const TensorMap*) {}
MACO_FN void boxes_begin() {}
MACO_FN void operands_begin() {}
// `map`: the words of TensorMap.
MACO_FN void copy_box(char* to, const TensorMap* map, i32 row, i32 col, u64*,
                      i32 end = 0x7fffffff) {
  const u64* words = (const u64*)map;
  const i64 rows = (i64)words[1], pitch = (i64)words[2], bytes = (i64)words[3], run = (i64)words[6],
            cols = run > 0 ? col / run * run + run : pitch;
  constexpr i64 line = 128;
  constexpr int kAnything = 0xff;  // mostly NaN
  for (i64 r = 0; r < (i64)words[4]; ++r)
    for (i64 at = 0; at < line; at += 16) {
      char* chunk = to + r * line + (at ^ ((r & 7) << 4));
      const i64 c = col + at / bytes;
      std::memset(chunk, row + r < end ? 0 : kAnything, 16);
      if (row + r >= rows || c >= cols || row + r >= end) continue;
      const i64 there = (cols - c) * bytes < 16 ? (cols - c) * bytes : 16;
      const char* from = (const char*)words[0] + ((row + r) * pitch + c) * bytes;
      host::touch(from, (u64)there, false);
      std::memcpy(chunk, from, (size_t)there);
    }
}
MACO_FN void copy_run_box(char* to, const TensorMap* map, i32 row, i32 run, i32 col, u64* barrier) {
  copy_box(to, map, row, run * (i32)((const u64*)map)[6] + col, barrier);
}
MACO_FN void copy_rows(char* to, const TensorMap* map, i32 row, i32 byte, u64*) {
  const u64* words = (const u64*)map;
  const i64 rows = (i64)words[1], pitch = (i64)words[2] * (i64)words[3],
            width = (i64)words[5] * (i64)words[3];
  for (i64 r = 0; r < (i64)words[4]; ++r) {
    std::memset(to + r * width, 0, (size_t)width);
    if (row + r >= rows || byte >= pitch) continue;
    const i64 there = pitch - byte < width ? pitch - byte : width;
    const char* from = (const char*)words[0] + (row + r) * pitch + byte;
    host::touch(from, (u64)there, false);
    std::memcpy(to + r * width, from, (size_t)there);
  }
}
MACO_FN void copy_line(char* to, const char* from, u32 bytes, u64*) {
  host::touch(from, bytes, false);
  std::memcpy(to, from, bytes);
}
MACO_FN void full_barrier_init(u64*) {}
MACO_FN void full_barrier_arrive(u64* full_barrier, u32 round) {
  store_release_cta((u32*)full_barrier, round + 1);
}
MACO_FN void full_barrier_expect(u64*, u32, u32) {}
MACO_FN void boxes_copied(u64* full_barrier, u32 round) {
  full_barrier_arrive(full_barrier, round);
}
MACO_FN bool is_full(const u64* full_barrier, u32 round) {
  return (i32)(load_acquire_cta((const u32*)full_barrier) - (round + 1)) >= 0;
}
MACO_FN void empty_barrier_init(u64*) {}
MACO_FN void empty_barrier_arrive(u64* empty_barrier, u32 round) {
  store_release_cta((u32*)empty_barrier, round + 1);
}
MACO_FN bool is_empty(const u64* empty_barrier, u32 round) {
  return (i32)(load_acquire_cta((const u32*)empty_barrier) - (round + 1)) >= 0;
}
MACO_FN bool is_empty_soon(const u64* empty_barrier, u32 round) {
  return is_empty(empty_barrier, round);
}
MACO_FN void copies_drain() {}

constexpr bool kHasMma = false;
// A lone lane has no part of a matrix: only declared.
template <bool kTranspose>
void load_matrices(u32 (&to)[4], const void* line);
u32 transpose_matrix(u32 matrix);
template <bool kBf16>
void multiply_matrices(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <bool kE4m3>
void multiply_matrices_f8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

// Likewise for wgmma.
template <int kWide, bool kBf16, int kTallAcross, int kWideAcross>
void wgmma(float (&d)[kWide / 8][4], u32 tall, u32 wide);
template <int kWide, bool kE4m3>
void wgmma_f8(float (&d)[kWide / 8][4], u32 tall, u32 wide, bool more_sums);
template <int kWide, bool kBf16>
void wgmma_new(float (&d)[kWide / 8][4], u32 tall, u32 wide);
template <int kWide, bool kBf16>
void wgmma_rows(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide);
void wgmma_begin();
void wgmma_end();
void wgmma_wait();
void forget(float& x);
void settle(u32& x);
template <int kNext = 64>
MACO_FN u32 wgmma_operand(const void*) {
  return 0;
}

// ---- profiles ---------------------------------------------------------------

#ifdef MACO_PROFILE
constexpr bool kProfile = true;
#else
constexpr bool kProfile = false;
#endif
MACO_FN u64 sm_clock() { return now_ns(); }
MACO_FN void clock_pair(u64& ns, u64& clock) { ns = clock = now_ns(); }
MACO_FN void stamp_store(void* to, u32 a, u32 b, u32 c, u32 d) {
  const u32 words[4] = {a, b, c, d};
  std::memcpy(to, words, sizeof words);
}

// ---- hooks of the debug modes -----------------------------------------------

MACO_FN void trace_task_begin(int place) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->task(self, place, true);
  maco_cpu::current = self;
}
MACO_FN void trace_task_end(int place) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->task(self, place, false);
  maco_cpu::current = self;
}

}  // namespace maco
