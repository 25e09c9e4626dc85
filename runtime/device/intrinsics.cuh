// intrinsics.cuh: what the machine provides, on a GPU: threads, barriers, memory and flags, and
// conversions in hardware. runtime/cpu/intrinsics/intrinsics.h provides the same for a host
// compiler. Nothing else in kernel.cu differs between the two.

#ifndef MACO_CPU

#define MACO_FN __device__ __forceinline__
// A kernel whose roles divide registers calls no functions: if both roles call one, ptxas refuses
// (C7600) or ignores the division (C7507).
#ifdef MACO_DIVIDES_REGISTERS
#define MACO_OP __device__ __forceinline__
#else
#define MACO_OP __device__ __noinline__
#endif
#define MACO_TABLE __device__
#define MACO_KERNEL extern "C" __global__ void __launch_bounds__(maco::kThreads, 1)
#define MACO_PAIRS __cluster_dims__(2, 1, 1)  // CTAs 2k and 2k + 1 are a pair
#define MACO_PARAM const __grid_constant__
#define MACO_UNROLL _Pragma("unroll")
#define MACO_ROLLED _Pragma("unroll 1")

namespace maco {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define MACO_HAS_ASYNC_COPY 1
#else
#define MACO_HAS_ASYNC_COPY 0
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#define MACO_HAS_F8 1
#else
#define MACO_HAS_F8 0
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define MACO_HAS_BOXES 1
#else
#define MACO_HAS_BOXES 0
#endif
struct TensorMap;

// ---- who runs: consumer warps, and behind them loader warps ------------------

constexpr int kConsumers = Cta::kConsumers;
constexpr int kWarpLanes = 32;
constexpr int kWarps = kConsumers / kWarpLanes;
constexpr int kLoaders = Cta::kLoaders;
constexpr int kSignallers = Cta::kSignallers;
constexpr int kThreads = kConsumers + kLoaders + kSignallers + Cta::kSpare;

// A consumer's thread number. If tasks are short, and so prepared ahead, the compiler may assume
// the range, which saves instructions. (In long loops it then moves too much out of them, and
// spills.)
MACO_FN int consumer_thread() {
  if constexpr (Cta::kPrepared > 0) __builtin_assume(threadIdx.x < kConsumers);
  return (int)threadIdx.x;
}
MACO_FN int warp() { return consumer_thread() >> 5; }
MACO_FN int warp_lane() { return (int)(threadIdx.x & 31); }
// consumer_thread() without the compiler knowing its value. What a task computes from it stays in
// the task; else the compiler computes it once for all tasks, and it takes registers from all of
// them.
MACO_FN int task_thread() {
  int thread;
  asm volatile("mov.u32 %0, %1;" : "=r"(thread) : "r"(threadIdx.x));
  return thread;
}
MACO_FN int loader_thread() { return (int)(threadIdx.x & 31); }
MACO_FN bool is_loader() { return threadIdx.x >= kConsumers; }
// Whether the loader looks at waits itself, as on the CPU target, where there is no scout.
MACO_FN constexpr bool loader_scouts() { return false; }
MACO_FN bool is_signaller() {
  return threadIdx.x >= kConsumers + kLoaders && threadIdx.x < kConsumers + kLoaders + kSignallers;
}
MACO_FN bool is_spare() { return threadIdx.x >= kConsumers + kLoaders + kSignallers; }
// The number of a warp that completes a group: from 1, behind the signaller, which is 0.
constexpr int kSpareWarps = Cta::kSpare / kWarpLanes;
MACO_FN int spare_warp() { return ((int)threadIdx.x - kConsumers - kLoaders) / kWarpLanes; }
MACO_FN int cta_id() { return (int)blockIdx.x; }
MACO_FN int grid_thread() { return (int)(blockIdx.x * blockDim.x + threadIdx.x); }
MACO_FN int grid_threads() { return (int)(gridDim.x * blockDim.x); }

// The CTA's dynamic shared memory.
MACO_FN char* cta_memory() {
  extern __shared__ __align__(1024) char maco_shared[];
  return maco_shared;
}

// ---- barriers, votes, shuffles ----------------------------------------------

// A barrier of the consumers. Barrier 0 is __syncthreads(), which includes the loader and is used
// only at the kernel's begin.
MACO_FN void cta_sync() { asm volatile("barrier.sync 1, %0;" ::"n"(kConsumers) : "memory"); }
// A barrier of the consumers that also tells all of them whether any passed true.
MACO_FN bool cta_any(bool value) {
  u32 any;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tbarrier.red.or.pred q, 1, %2, "
      "p;\n\tselp.u32 %0, 1, 0, q;\n\t}"
      : "=r"(any)
      : "r"((u32)value), "n"(kConsumers)
      : "memory");
  return any != 0;
}
MACO_FN void warp_sync() { __syncwarp(); }
MACO_FN bool warp_any(bool value) { return __any_sync(0xffffffffu, value) != 0; }
// A barrier of all threads of the CTA, used once, after the thread for which initializes() is true
// has prepared the shared memory.
MACO_FN bool initializes() { return threadIdx.x == 0; }
MACO_FN void start_sync() { __syncthreads(); }
// From here on the role's threads have their own number of registers, if roles divide registers.
template <int kRegisters>
MACO_FN void take_registers() {
#ifdef MACO_DIVIDES_REGISTERS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
MACO_FN void give_registers() {
#ifdef MACO_DIVIDES_REGISTERS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// Waits until the launch before this one has ended and its results are visible, if this launch may
// begin earlier (launches that number themselves).
MACO_FN void follow_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets such a launch behind this one begin.
MACO_FN void lead_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A value that is the same for all lanes, which the compiler can't see.
MACO_FN int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }
MACO_FN int shuffle(int value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
MACO_FN float shuffle(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
MACO_FN float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
MACO_FN i32 shuffle_xor(i32 value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// ---- arithmetic: correctly rounded or within 2.2 ulp (fpow 4), nothing faster ---------

MACO_FN float fexp(float x) { return expf(x); }
MACO_FN float flog(float x) { return logf(x); }
MACO_FN float fsin(float x) { return sinf(x); }
MACO_FN float fcos(float x) { return cosf(x); }
MACO_FN float ferf(float x) { return erff(x); }
MACO_FN float fpow(float a, float b) { return powf(a, b); }
// 2 to the x; results below the least normal number become 0.
MACO_FN float fexp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// The larger one; of a number and NaN the number.
MACO_FN float fmax(float a, float b) { return fmaxf(a, b); }
MACO_FN float ftanh(float x) { return tanhf(x); }
// Sine and cosine of pi x.
MACO_FN void fsincospi(float x, float& sine, float& cosine) { sincospif(x, &sine, &cosine); }
// Ops compute with these functions, never with operators. A compiler may contract the product and
// the sum of operators, even those of two fused ops, into one operation that rounds once (nvcc does
// by default); the bits would then depend on flags and on fusing.
MACO_FN float fadd(float a, float b) { return __fadd_rn(a, b); }
MACO_FN float fsub(float a, float b) { return __fsub_rn(a, b); }
MACO_FN float fmul(float a, float b) { return __fmul_rn(a, b); }
MACO_FN float fdiv(float a, float b) { return __fdiv_rn(a, b); }
MACO_FN float fsqrt(float x) { return __fsqrt_rn(x); }
// 1 / b, rounded once as fdiv does.
MACO_FN float finverse(float b) { return __frcp_rn(b); }
// The larger of two; NaN if either is NaN. Of two zeros it may be either.
MACO_FN float ftop(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float top;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(top) : "f"(a), "f"(b));
  return top;
#else
  return a != a ? a : (a > b ? a : b);
#endif
}
// The largest value of the warp's lanes, as by ftop.
MACO_FN float warp_top(float value) {
#if __CUDA_ARCH__ >= 800
  // Compared as integers in the order of floats; a NaN, which ftop makes positive, is above all.
  int order = __float_as_int(ftop(value, value));
  order ^= (order >> 31) & 0x7fffffff;
  order = __reduce_max_sync(0xffffffffu, order);
  return __int_as_float(order ^ ((order >> 31) & 0x7fffffff));
#else
  for (int mask = 16; mask > 0; mask /= 2) value = ftop(value, shuffle_xor(value, mask));
  return value;
#endif
}
// a / b for b in [1, 2^100], within 1.5 ulp: a product with an estimate of 1 / b, which is within 1
// ulp.
MACO_FN float fratio(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  return fmul(a, r);
}
// 1 / sqrt(x) within 2.2 ulp: the estimate's relative error is at most 2^-22.9.
MACO_FN float fnear_rsqrt(float x) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
MACO_FN float ffma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Declares x's old value dead. It is an instruction because ptxas takes a variable that some branch
// doesn't set as live from the kernel's begin, and keeps a register for it.
MACO_FN void forget(float& x) { asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x)); }
// Makes the compiler compute x here, not where it is first needed.
MACO_FN void settle(u32& x) { asm volatile("" : "+r"(x)); }
MACO_FN u32 bits_of(float x) { return __float_as_uint(x); }
MACO_FN float float_of(u32 x) { return __uint_as_float(x); }

// ---- conversions in hardware; numbers.cuh has the others, by bits ------------

constexpr bool kHasF16 = true;
constexpr bool kHasBf16 = MACO_HAS_ASYNC_COPY;
constexpr bool kHasF8 = MACO_HAS_F8;

MACO_FN float f16_to_float(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
MACO_FN u16 float_to_f16(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
MACO_FN u16 float_to_bf16(float x) {
  u16 r = 0;
#if MACO_HAS_ASYNC_COPY
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
#endif
  return r;
}
// And back. It converts a zero beside it: ptxas gives a lone conversion to the unit for
// exponentials, which takes four times as long.
MACO_FN float rounded_to_bf16(float x) {
  u32 r = 0;
#if MACO_HAS_ASYNC_COPY
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(0.0f));
#endif
  return float_of(r);
}
MACO_FN u8 float_to_e4m3(float x) {
  u16 r = 0;
#if MACO_HAS_F8
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
#endif
  return (u8)r;
}
MACO_FN u8 float_to_e5m2(float x) {
  u16 r = 0;
#if MACO_HAS_F8
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
#endif
  return (u8)r;
}

// ---- global memory ----------------------------------------------------------

// All accesses of ops to global memory go through these functions.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};
template <class T>
MACO_FN T gload(const T* p) {
  return *p;
}
template <class T>
MACO_FN void gstore(T* p, T v) {
  *p = v;
}
template <int N, class T>
MACO_FN Vec<T, N> gload_vec(const T* p) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  return *(const Vec<T, N>*)p;
}
template <int N, class T>
MACO_FN void gstore_vec(T* p, Vec<T, N> v) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  // By one instruction: the compiler stores members one by one, even through a vector type. (NVRTC
  // lacks the host headers' memcpy; a union works.)
  union Words {
    Vec<T, N> v;
    u32 w[sizeof(Vec<T, N>) < 4 ? 1 : sizeof(Vec<T, N>) / 4];
    MACO_FN Words(Vec<T, N> x) : v(x) {}
  } u(v);
  if constexpr (sizeof(v) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(u.w[0]), "r"(u.w[1]),
                 "r"(u.w[2]), "r"(u.w[3])
                 : "memory");
  } else if constexpr (sizeof(v) == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(u.w[0]), "r"(u.w[1]) : "memory");
  } else if constexpr (sizeof(v) == 4) {
    *(u32*)p = u.w[0];
  } else {
    *(Vec<T, N>*)p = v;
  }
}
// A store to a peer's slot: plain, ordered by the release of the signal that follows.
template <class T>
MACO_FN void peer_store(T* p, T v) {
  *p = v;
}
template <int N, class T>
MACO_FN void peer_store_vec(T* p, Vec<T, N> v) {
  gstore_vec<N>(p, v);
}
// Brings the line at p into the cache that all SMs share; a hint.
MACO_FN void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// Likewise for a line of a table, into the SM's own cache.
MACO_FN void prefetch_near(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }
// A row of a constant table.
template <class T>
MACO_FN T table_load(const T* p) {
  static_assert(sizeof(T) == 16 || sizeof(T) == 8 || sizeof(T) == 4,
                "rows of tables are 4, 8 or 16 bytes");
  union {
    u32 w[sizeof(T) / 4];
    T row;
  } u;
  if constexpr (sizeof(T) == 16) {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(u.w[0]), "=r"(u.w[1]), "=r"(u.w[2]), "=r"(u.w[3])
        : "l"(p));
  } else if constexpr (sizeof(T) == 8) {
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(u.w[0]), "=r"(u.w[1]) : "l"(p));
  } else {
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(u.w[0]) : "l"(p));
  }
  return u.row;
}

// ---- flags: the release and the acquire are on the word itself --------------

MACO_FN u32 load_acquire_gpu(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
MACO_FN u32 load_acquire_sys(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
MACO_FN void add_release_gpu(u32* p, u32 v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void add_release_sys(u32* p, u32 v) {
  asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void store_release_sys(u32* p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Words in the CTA's shared memory.
MACO_FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
MACO_FN u32 load_acquire_cta(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(p)) : "memory");
  return v;
}
MACO_FN u32 load_relaxed_cta(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(p)) : "memory");
  return v;
}
MACO_FN void store_release_cta(u32* p, u32 v) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(p)), "r"(v) : "memory");
}
// Accesses to words that order nothing.
MACO_FN u32 load_relaxed(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
MACO_FN void store_relaxed(u32* p, u32 v) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void add_relaxed(u32* p, u32 v) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Sets a word of this rank or CTA to 1; true for the caller that found 0.
MACO_FN bool claim(u32* p) {
  u32 old;
  asm volatile("atom.relaxed.gpu.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(p) : "memory");
  return old == 0;
}

// Packets: 4 bytes of data, then 4 bytes of flag; only the 8 bytes together are atomic.
MACO_FN void packet_store(u64* slot, u32 data, u32 flag) {
  u64 v = ((u64)flag << 32) | data;
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(slot), "l"(v) : "memory");
}
MACO_FN u64 packet_load(const u64* slot) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(slot) : "memory");
  return v;
}

// Stores two adjacent packets, at a multiple of 16 bytes, in one access; each is atomic by itself.
MACO_FN void packet_pair_store(u64* slot, u32 first, u32 second, u32 flag) {
  const u64 a = ((u64)flag << 32) | first, b = ((u64)flag << 32) | second;
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(slot), "l"(a), "l"(b)
               : "memory");
}
MACO_FN void packet_pair_load(const u64* slot, u64& first, u64& second) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(slot)
               : "memory");
}

// Packets between a rank's own tasks: a value and its flag in a word of 4 or 8 bytes, which is
// atomic. N words, at most 16 bytes.
template <int N>
MACO_FN void words_load(const u32* p, u32* to) {
  if constexpr (N == 4) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(p)
                 : "memory");
  } else if constexpr (N == 2) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "l"(p)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(to[0]) : "l"(p) : "memory");
  }
}
template <int N>
MACO_FN void words_load(const u64* p, u64* to) {
  if constexpr (N == 2) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(to[0]), "=l"(to[1])
                 : "l"(p)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(to[0]) : "l"(p) : "memory");
  }
}
MACO_FN void word_store(u32* p, u32 v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void word_store(u64* p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// ---- the other CTA of a pair -------------------------------------------------

// The address in the other CTA's shared memory that corresponds to `p` in the own one.
MACO_FN u32 mate_address(const void* p) {
  u32 address = 0;
#if MACO_HAS_BOXES
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(p)), "r"((cta_id() & 1) ^ 1));
#endif
  return address;
}
// Stores to a word of the other CTA, which that CTA reads like words of its own. A release and an
// acquire of both CTAs would take a microsecond, and the word only says that reads have ended.
MACO_FN void mate_store(u32* p, u32 v) {
#if MACO_HAS_BOXES
  asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(mate_address(p)), "r"(v)
               : "memory");
#endif
}
// Reads a word of the other CTA's, behind a pair_sync.
MACO_FN u32 mate_load(const u32* p) {
  u32 v = 0;
#if MACO_HAS_BOXES
  asm volatile("ld.relaxed.cluster.shared::cluster.u32 %0, [%1];"
               : "=r"(v)
               : "r"(mate_address(p))
               : "memory");
#endif
  return v;
}
// Whether a page's full barrier counts what the other CTA sends. If not, the other has to tell.
constexpr bool kCountsSent = true;
// Sends 16 bytes to a page of the other CTA, at the address that corresponds to `to`, and counts
// them in its full barrier.
MACO_FN void mate_send16(void* to, const Vec<u32, 4>& v, u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(mate_address(to)),
      "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3]), "r"(mate_address(full_barrier))
      : "memory");
#endif
}
// A barrier of all threads of both CTAs: mbarriers that either has initialized are then visible to
// the other.
MACO_FN void pair_sync() {
#if MACO_HAS_BOXES
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// ---- waiting ----------------------------------------------------------------

MACO_FN u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
// Pauses between two looks at `word`, after `spins` looks. A hand-off is as fast as this loop, so
// it sleeps only after a while.
constexpr u32 kSpinsAwake = 4096;
MACO_FN void pause_for(const void* word, u32 spins) {
  (void)word;
  if (spins > kSpinsAwake) __nanosleep(64);
}
// The clock and the abort word are checked only once in so many spins, so that short waits don't
// run that code, which would take room in the instruction cache. (In waits that sleep a spin lasts
// up to 20 us, and so many spins some 80 ms.)
constexpr u32 kSpinsPerLook = 4096;

// ---- the loader's copies ----------------------------------------------------

// Copies 16 bytes, both sides aligned to 16; asynchronously if the machine can.
MACO_FN void copy16(void* to, const void* from) {
#if MACO_HAS_ASYNC_COPY
  u32 address = shared_address(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
  *(Vec<u32, 4>*)to = *(const Vec<u32, 4>*)from;
#endif
}
// Likewise, or stores zeros if nothing is `there` to copy.
MACO_FN void copy16_or_zero(void* to, const void* from, bool there) {
#if MACO_HAS_ASYNC_COPY
  u32 address = shared_address(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
#else
  *(Vec<u32, 4>*)to = there ? *(const Vec<u32, 4>*)from : Vec<u32, 4>{};
#endif
}
// The same bits as another type of the same size.
template <class To, class From>
MACO_FN To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "");
  union {
    From f;
    To t;
  } u = {from};
  return u.t;
}

// What is computed from a loaded value is computed behind this. The compiler would do it right
// behind the load, and everything after it would wait for the load.
template <class T>
MACO_FN void used_from_here(T& value) {
  static_assert(sizeof(T) % 4 == 0 || sizeof(T) <= 2, "registers");
  if constexpr (sizeof(T) == 1) {
    u16 word = bits_as<u8>(value);
    asm volatile("" : "+h"(word));
    value = bits_as<T>((u8)word);
  } else if constexpr (sizeof(T) == 2) {
    auto word = bits_as<u16>(value);
    asm volatile("" : "+h"(word));
    value = bits_as<T>(word);
  } else {
    auto words = bits_as<Vec<u32, (int)sizeof(T) / 4>>(value);
    MACO_UNROLL
    for (u32& word : words.v) asm volatile("" : "+r"(word));
    value = bits_as<T>(words);
  }
}
// Reads 16 bytes of shared memory, aligned to 16.
MACO_FN Vec<u32, 4> shared_load16(const void* p) {
  Vec<u32, 4> v;
  u32 address = shared_address(p);
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.v[0]), "=r"(v.v[1]), "=r"(v.v[2]), "=r"(v.v[3])
               : "r"(address));
  return v;
}
// Writes two floats to shared memory, aligned to 8 bytes.
MACO_FN void shared_store8(float* p, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared_address(p)), "f"(first), "f"(second)
               : "memory");
}
// True for one of the loader's threads, always the same one, in a form from which the compiler
// knows that it is only one. All loader threads call it; `lane`: its number.
MACO_FN bool elected(int& lane) {
#if MACO_HAS_BOXES
  u32 chosen, which;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync %0|p, 0xffffffff;\n\tselp.u32 %1, 1, 0, p;\n\t}"
               : "=r"(which), "=r"(chosen));
  lane = (int)which;
  return chosen != 0;
#else
  lane = 0;
  return loader_thread() == 0;
#endif
}
// A page's full barrier, an mbarrier where the machine has them: all copies of the loader's threads
// into the page have arrived. All loader threads call `full_barrier_arrive` when they have issued
// their copies; or one of them calls `full_barrier_expect` before it copies boxes, and nothing
// else. `is_full` becomes true once round `round` (0, 1, ...) is complete.
MACO_FN void full_barrier_init(u64* full_barrier) {
#if MACO_HAS_ASYNC_COPY
  // One arrival from each thread for its asynchronous copies, and one for the ordinary stores of
  // all.
  u32 address = shared_address(full_barrier);
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(kLoaders + 1) : "memory");
#else
  *(u32*)full_barrier = 0;
#endif
}
// Announces that `bytes` of boxes will arrive in the page in round `round`; counts as all arrivals.
MACO_FN void full_barrier_expect(u64* full_barrier, u32 round, u32 bytes) {
  (void)round;
#if MACO_HAS_BOXES
  u32 address = shared_address(full_barrier);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(bytes)
               : "memory");
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(address), "n"(kLoaders + 1)
               : "memory");
#endif
}
// Copies the box at (row, col) of a matrix to `to`, aligned to 1024. Rows from `end` on, which a
// launch doesn't have, may get any data.
MACO_FN void copy_box(char* to, const TensorMap* map, i32 row, i32 col, u64* full_barrier,
                      i32 = 0x7fffffff) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(map), "r"(col), "r"(row), "r"(shared_address(full_barrier))
      : "memory");
#endif
}
// Likewise at column `col` of a run.
MACO_FN void copy_run_box(char* to, const TensorMap* map, i32 row, i32 run, i32 col,
                          u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(map), "r"(col), "r"(run), "r"(row), "r"(shared_address(full_barrier))
      : "memory");
#endif
}
// The result of createpolicy.fractional.L2::evict_first for all data: as a constant it costs
// nothing. In the cache such data is evicted first.
[[maybe_unused]] constexpr u64 kReadOnce = 0x12f0000000000000;
// Copies the box of long rows at (row, byte) of a matrix that is read once to `to`, aligned to 128.
MACO_FN void copy_rows(char* to, const TensorMap* map, i32 row, i32 byte, u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(byte / 8), "r"(row), "r"(shared_address(full_barrier)), "l"(kReadOnce)
      : "memory");
#endif
}
// Copies contiguous bytes that are read once. `bytes` and both addresses: multiples of 16.
MACO_FN void copy_line(char* to, const char* from, u32 bytes, u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(full_barrier)), "l"(kReadOnce)
      : "memory");
#endif
}
// Called before a CTA's first box through a map: makes the map visible as the host wrote it.
MACO_FN void map_begin(const TensorMap* map) {
#if MACO_HAS_BOXES
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
#endif
}
// Called before a task's first box of what other tasks wrote, whose signals the caller has seen.
MACO_FN void boxes_begin() {
#if MACO_HAS_BOXES
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
// Called behind a thread's writes to shared memory for wgmma, and before the barrier behind which
// the multiplications begin.
MACO_FN void operands_begin() {
#if MACO_HAS_BOXES
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Called once all boxes have been requested. (On the CPU target the boxes are there by then, and
// only this says so.)
MACO_FN void boxes_copied(u64* full_barrier, u32 round) { (void)full_barrier, (void)round; }
MACO_FN void full_barrier_arrive(u64* full_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  (void)round;
  u32 address = shared_address(full_barrier);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address) : "memory");
  __syncwarp();
  if (loader_thread() == 0)
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
#else
  __syncwarp();
  if (loader_thread() == 0) store_release_cta((u32*)full_barrier, round + 1);
#endif
}
#if MACO_HAS_ASYNC_COPY
// Whether the mbarrier's phase `round` is over. If it isn't, a thread sleeps a while if the machine
// can: polling would take issue slots from the loader.
MACO_FN bool phase_over(const u64* barrier, u32 round) {
  u32 address = shared_address(barrier);
  u32 done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
#if __CUDA_ARCH__ >= 900
      "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
#else
      "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
#endif
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(address), "r"(round & 1)
      : "memory");
  return done != 0;
}
// The same for a thread that has looked in vain and has nothing else to do: it sleeps until the
// phase is over, or some 20 us. Each look costs power, which other SMs could use.
MACO_FN bool phase_over_soon(const u64* barrier, u32 round) {
#if __CUDA_ARCH__ >= 900
  u32 done;
  asm volatile(
      "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2, %3;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(round & 1), "r"(20000)
      : "memory");
  return done != 0;
#else
  return phase_over(barrier, round);
#endif
}
#endif
MACO_FN bool is_full(const u64* full_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  return phase_over(full_barrier, round);
#else
  return (i32)(load_acquire_cta((const u32*)full_barrier) - (round + 1)) >= 0;
#endif
}
// A page's empty barrier: all consumer warps have released the page. One lane of each warp calls
// `empty_barrier_arrive`, behind a warp_sync. `is_empty` becomes true once round `round` is
// complete.
MACO_FN void empty_barrier_init(u64* empty_barrier) {
#if MACO_HAS_ASYNC_COPY
  u32 address = shared_address(empty_barrier);
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(kWarps) : "memory");
#else
  *(u32*)empty_barrier = 0;
#endif
}
MACO_FN void empty_barrier_arrive(u64* empty_barrier, u32 round) {
  (void)round;
  u32 address = shared_address(empty_barrier);
#if MACO_HAS_ASYNC_COPY
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
#else
  asm volatile("red.release.cta.shared.add.u32 [%0], 1;" ::"r"(address) : "memory");
#endif
}
MACO_FN bool is_empty(const u64* empty_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  return phase_over(empty_barrier, round);
#else
  return (i32)(load_acquire_cta((const u32*)empty_barrier) - (round + 1) * kWarps) >= 0;
#endif
}
MACO_FN bool is_empty_soon(const u64* empty_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  return phase_over_soon(empty_barrier, round);
#else
  return is_empty(empty_barrier, round);
#endif
}
// Called before the loader exits: none of its copies may be in flight.
MACO_FN void copies_drain() {
#if MACO_HAS_ASYNC_COPY
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// ---- products on tensor cores, a warp at a time ------------------------------

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
[[maybe_unused]] constexpr bool kHasMma = true;
#else
[[maybe_unused]] constexpr bool kHasMma = false;  // of bf16; sm_75 has f16
#endif
// Four matrices of 8 x 8 elements; lane l gives the address of line l % 8 of matrix l / 8.
template <bool kTranspose>
MACO_FN void load_matrices(u32 (&to)[4], const void* line) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(line)));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(line)));
  }
#endif
}

// Transposes a matrix of 8 x 8 elements of 2 bytes: lane l has elements 2 (l % 4) and the next of
// row l / 4, and gets those elements of column l / 4 (from sm_75 on; before, nothing changes).
MACO_FN u32 transpose_matrix(u32 matrix) {
  u32 to = matrix;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(matrix));
#endif
  return to;
}

// d += a b, 16 x 16 by 16 x 8 elements: bf16 (from sm_80 on) or f16 (from sm_75 on).
template <bool kBf16>
MACO_FN void multiply_matrices(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#elif __CUDA_ARCH__ >= 750
  if constexpr (!kBf16) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
  }
#endif
}

// Likewise 16 x 32 by 32 x 8 elements of 8 bits (from sm_89 on): e4m3 or e5m2.
template <bool kE4m3>
MACO_FN void multiply_matrices_f8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  if constexpr (kE4m3) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}

// ---- products on tensor cores, four warps at a time --------------------------

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define MACO_HAS_WGMMA 1
#else
#define MACO_HAS_WGMMA 0
#endif

// wgmma_begin comes before multiplications: what was written to their sums is visible. Behind it
// they are in flight, and sums and pages belong to them until wgmma_wait.
MACO_FN void wgmma_begin() {
#if MACO_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
MACO_FN void wgmma_end() {
#if MACO_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
MACO_FN void wgmma_wait() {
#if MACO_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// The descriptor of an operand: swizzled lines of 128 bytes in shared memory. Eight lines further
// are the next 8 rows (along K) or the next 8 elements of K (across). Across, kNext lines further
// are the next 64 rows. Adding 1 moves it by 16 bytes. The upper half is the same for all.
template <int kNext = 64>
MACO_FN u32 wgmma_operand(const void* lines) {
  return ((shared_address(lines) & 0x3ffff) >> 4) | (u32)(kNext * 128 / 16) << 16;
}
MACO_FN u64 wgmma_descriptor(u32 operand) {
  constexpr u32 kEight = 8 * 128 / 16, kSwizzled = 1;
  return (u64)(kEight | kSwizzled << 30) << 32 | operand;
}

// d += tall wide, 64 x 16 by 16 x kWide elements. kTallAcross, kWideAcross: whether the operand
// lies across K.
#define MACO_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define MACO_SUMS4(j) MACO_SUMS(j), MACO_SUMS(j + 1), MACO_SUMS(j + 2), MACO_SUMS(j + 3)
#define MACO_WGMMA(shape, type, sums, operands, ...)                                               \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\twgmma.mma_async.sync.aligned." shape \
               ".f32." type "." type " {" sums "}, " operands ";\n\t}"                             \
               : __VA_ARGS__                                                                       \
               : "l"(wgmma_descriptor(tall)), "l"(wgmma_descriptor(wide)), "n"(kTallAcross),       \
                 "n"(kWideAcross))
#define MACO_EIGHT0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MACO_EIGHT1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define MACO_EIGHT2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define MACO_EIGHT3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define MACO_EIGHT4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define MACO_EIGHT5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define MACO_EIGHT6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define MACO_EIGHT7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define MACO_EIGHT8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define MACO_EIGHT9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define MACO_EIGHT10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define MACO_EIGHT11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define MACO_EIGHT12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define MACO_EIGHT13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define MACO_EIGHT14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define MACO_EIGHT15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define MACO_REGISTERS0 MACO_EIGHT0 ", " MACO_EIGHT1
#define MACO_REGISTERS1 MACO_EIGHT2 ", " MACO_EIGHT3
#define MACO_REGISTERS2 MACO_EIGHT4 ", " MACO_EIGHT5
#define MACO_REGISTERS3 MACO_EIGHT6 ", " MACO_EIGHT7
#define MACO_REGISTERS4 MACO_EIGHT8 ", " MACO_EIGHT9
#define MACO_REGISTERS5 MACO_EIGHT10 ", " MACO_EIGHT11
#define MACO_REGISTERS6 MACO_EIGHT12 ", " MACO_EIGHT13
#define MACO_REGISTERS7 MACO_EIGHT14 ", " MACO_EIGHT15
#define MACO_HALF MACO_REGISTERS0 ", " MACO_REGISTERS1
#define MACO_WHOLE MACO_HALF ", " MACO_REGISTERS2 ", " MACO_REGISTERS3
#define MACO_MOST MACO_WHOLE ", " MACO_REGISTERS4 ", " MACO_REGISTERS5
#define MACO_TWICE MACO_MOST ", " MACO_REGISTERS6 ", " MACO_REGISTERS7
#define MACO_SUMS16(j) MACO_SUMS4(j), MACO_SUMS4(j + 4), MACO_SUMS4(j + 8), MACO_SUMS4(j + 12)
template <int kWide, bool kBf16, int kTallAcross, int kWideAcross>
MACO_FN void wgmma(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
#if MACO_HAS_WGMMA
  if constexpr (kWide == 8 && kBf16) {
    MACO_WGMMA("m64n8k16", "bf16", "%0, %1, %2, %3", "%4, %5, p, 1, 1, %6, %7", MACO_SUMS(0));
  } else if constexpr (kWide == 16 && kBf16) {
    MACO_WGMMA("m64n16k16", "bf16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, p, 1, 1, %10, %11",
               MACO_SUMS(0), MACO_SUMS(1));
  } else if constexpr (kWide == 32 && kBf16) {
    MACO_WGMMA("m64n32k16", "bf16", MACO_REGISTERS0, "%16, %17, p, 1, 1, %18, %19", MACO_SUMS4(0));
  } else if constexpr (kWide == 64 && kBf16) {
    MACO_WGMMA("m64n64k16", "bf16", MACO_HALF, "%32, %33, p, 1, 1, %34, %35", MACO_SUMS4(0),
               MACO_SUMS4(4));
  } else if constexpr (kWide == 128 && kBf16) {
    MACO_WGMMA("m64n128k16", "bf16", MACO_WHOLE, "%64, %65, p, 1, 1, %66, %67", MACO_SUMS16(0));
  } else if constexpr (kWide == 192 && kBf16) {
    MACO_WGMMA("m64n192k16", "bf16", MACO_MOST, "%96, %97, p, 1, 1, %98, %99", MACO_SUMS16(0),
               MACO_SUMS4(16), MACO_SUMS4(20));
  } else if constexpr (kWide == 192) {
    MACO_WGMMA("m64n192k16", "f16", MACO_MOST, "%96, %97, p, 1, 1, %98, %99", MACO_SUMS16(0),
               MACO_SUMS4(16), MACO_SUMS4(20));
  } else if constexpr (kWide == 256 && kBf16) {
    MACO_WGMMA("m64n256k16", "bf16", MACO_TWICE, "%128, %129, p, 1, 1, %130, %131", MACO_SUMS16(0),
               MACO_SUMS16(16));
  } else if constexpr (kWide == 256) {
    MACO_WGMMA("m64n256k16", "f16", MACO_TWICE, "%128, %129, p, 1, 1, %130, %131", MACO_SUMS16(0),
               MACO_SUMS16(16));
  } else if constexpr (kWide == 8 && !kBf16) {
    MACO_WGMMA("m64n8k16", "f16", "%0, %1, %2, %3", "%4, %5, p, 1, 1, %6, %7", MACO_SUMS(0));
  } else if constexpr (kWide == 16 && !kBf16) {
    MACO_WGMMA("m64n16k16", "f16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, p, 1, 1, %10, %11",
               MACO_SUMS(0), MACO_SUMS(1));
  } else if constexpr (kWide == 32 && !kBf16) {
    MACO_WGMMA("m64n32k16", "f16", MACO_REGISTERS0, "%16, %17, p, 1, 1, %18, %19", MACO_SUMS4(0));
  } else if constexpr (kWide == 64 && !kBf16) {
    MACO_WGMMA("m64n64k16", "f16", MACO_HALF, "%32, %33, p, 1, 1, %34, %35", MACO_SUMS4(0),
               MACO_SUMS4(4));
  } else if constexpr (kWide == 128 && !kBf16) {
    MACO_WGMMA("m64n128k16", "f16", MACO_WHOLE, "%64, %65, p, 1, 1, %66, %67", MACO_SUMS16(0));
  }
#endif
}

// d = tall wide or, with `more`, d += tall wide, 64 x 32 by 32 x kWide elements of 8 bits: e4m3 or
// e5m2. Both operands lie along K.
#define MACO_WGMMA_F8(shape, type, sums, operands, more, ...)                                \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " more                                  \
               ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums \
               "}, " operands ", p, 1, 1;\n\t}"                                              \
               : __VA_ARGS__                                                                 \
               : "l"(wgmma_descriptor(tall)), "l"(wgmma_descriptor(wide)), "r"((u32)more_sums))
#define MACO_WGMMA_F8_OF(type)                                                                     \
  if constexpr (kWide == 8) {                                                                      \
    MACO_WGMMA_F8("m64n8k32", type, "%0, %1, %2, %3", "%4, %5", "%6", MACO_SUMS(0));               \
  } else if constexpr (kWide == 16) {                                                              \
    MACO_WGMMA_F8("m64n16k32", type, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9", "%10",            \
                  MACO_SUMS(0), MACO_SUMS(1));                                                     \
  } else if constexpr (kWide == 32) {                                                              \
    MACO_WGMMA_F8("m64n32k32", type, MACO_REGISTERS0, "%16, %17", "%18", MACO_SUMS4(0));           \
  } else if constexpr (kWide == 64) {                                                              \
    MACO_WGMMA_F8("m64n64k32", type, MACO_REGISTERS0 ", " MACO_REGISTERS1, "%32, %33", "%34",      \
                  MACO_SUMS4(0), MACO_SUMS4(4));                                                   \
  } else {                                                                                         \
    MACO_WGMMA_F8("m64n128k32", type,                                                              \
                  MACO_REGISTERS0 ", " MACO_REGISTERS1 ", " MACO_REGISTERS2 ", " MACO_REGISTERS3,  \
                  "%64, %65", "%66", MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS4(8), MACO_SUMS4(12)); \
  }
template <int kWide, bool kE4m3>
MACO_FN void wgmma_f8(float (&d)[kWide / 8][4], u32 tall, u32 wide, bool more_sums) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
  static_assert(kWide <= 32 || kWide == 64 || kWide == 128, "no other width is asked for");
#if MACO_HAS_WGMMA
  if constexpr (kE4m3) {
    MACO_WGMMA_F8_OF("e4m3")
  } else {
    MACO_WGMMA_F8_OF("e5m2")
  }
#endif
}

// d = tall wide, whatever d was; both operands lie along K.
#define MACO_NEW_SUMS(j) "=f"(d[j][0]), "=f"(d[j][1]), "=f"(d[j][2]), "=f"(d[j][3])
#define MACO_NEW_SUMS4(j) \
  MACO_NEW_SUMS(j), MACO_NEW_SUMS(j + 1), MACO_NEW_SUMS(j + 2), MACO_NEW_SUMS(j + 3)
#define MACO_NEW_WGMMA(shape, type, sums, operands, ...)                                           \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 0, 0;\n\twgmma.mma_async.sync.aligned." shape \
               ".f32." type "." type " {" sums "}, " operands ", p, 1, 1, 0, 0;\n\t}"              \
               : __VA_ARGS__                                                                       \
               : "l"(wgmma_descriptor(tall)), "l"(wgmma_descriptor(wide)))
template <int kWide, bool kBf16>
MACO_FN void wgmma_new(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
#if MACO_HAS_WGMMA
  static_assert(kWide == 32 || kWide == 64, "no other width is asked for");
  if constexpr (kWide == 32 && kBf16) {
    MACO_NEW_WGMMA("m64n32k16", "bf16", MACO_REGISTERS0, "%16, %17", MACO_NEW_SUMS4(0));
  } else if constexpr (kWide == 32) {
    MACO_NEW_WGMMA("m64n32k16", "f16", MACO_REGISTERS0, "%16, %17", MACO_NEW_SUMS4(0));
  } else if constexpr (kBf16) {
    MACO_NEW_WGMMA("m64n64k16", "bf16", MACO_HALF, "%32, %33", MACO_NEW_SUMS4(0),
                   MACO_NEW_SUMS4(4));
  } else {
    MACO_NEW_WGMMA("m64n64k16", "f16", MACO_HALF, "%32, %33", MACO_NEW_SUMS4(0), MACO_NEW_SUMS4(4));
  }
#endif
}

// d += tall wide with the tall operand in registers: each warp has 16 of its rows, as load_matrices
// loads them. The wide operand lies across K.
#define MACO_WGMMA_ROWS(shape, type, sums, operands, ...)                                          \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\twgmma.mma_async.sync.aligned." shape \
               ".f32." type "." type " {" sums "}, " operands ", p, 1, 1, 1;\n\t}"                 \
               : __VA_ARGS__                                                                       \
               : "r"(tall[0]), "r"(tall[1]), "r"(tall[2]), "r"(tall[3]),                           \
                 "l"(wgmma_descriptor(wide)))
#define MACO_BEHIND(a, b, c, d, e) "{%" #a ", %" #b ", %" #c ", %" #d "}, %" #e
#define MACO_WGMMA_ROWS_OF(type)                                                                   \
  if constexpr (kWide == 16) {                                                                     \
    MACO_WGMMA_ROWS("m64n16k16", type, MACO_EIGHT0, MACO_BEHIND(8, 9, 10, 11, 12), MACO_SUMS(0),   \
                    MACO_SUMS(1));                                                                 \
  } else if constexpr (kWide == 32) {                                                              \
    MACO_WGMMA_ROWS("m64n32k16", type, MACO_REGISTERS0, MACO_BEHIND(16, 17, 18, 19, 20),           \
                    MACO_SUMS4(0));                                                                \
  } else if constexpr (kWide == 48) {                                                              \
    MACO_WGMMA_ROWS("m64n48k16", type, MACO_REGISTERS0 ", " MACO_EIGHT2,                           \
                    MACO_BEHIND(24, 25, 26, 27, 28), MACO_SUMS4(0), MACO_SUMS(4), MACO_SUMS(5));   \
  } else if constexpr (kWide == 64) {                                                              \
    MACO_WGMMA_ROWS("m64n64k16", type, MACO_HALF, MACO_BEHIND(32, 33, 34, 35, 36), MACO_SUMS4(0),  \
                    MACO_SUMS4(4));                                                                \
  } else if constexpr (kWide == 80) {                                                              \
    MACO_WGMMA_ROWS("m64n80k16", type, MACO_HALF ", " MACO_EIGHT4,                                 \
                    MACO_BEHIND(40, 41, 42, 43, 44), MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS(8),   \
                    MACO_SUMS(9));                                                                 \
  } else if constexpr (kWide == 96) {                                                              \
    MACO_WGMMA_ROWS("m64n96k16", type, MACO_HALF ", " MACO_REGISTERS2,                             \
                    MACO_BEHIND(48, 49, 50, 51, 52), MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS4(8)); \
  } else if constexpr (kWide == 112) {                                                             \
    MACO_WGMMA_ROWS("m64n112k16", type, MACO_HALF ", " MACO_REGISTERS2 ", " MACO_EIGHT6,           \
                    MACO_BEHIND(56, 57, 58, 59, 60), MACO_SUMS4(0), MACO_SUMS4(4), MACO_SUMS4(8),  \
                    MACO_SUMS(12), MACO_SUMS(13));                                                 \
  } else if constexpr (kWide == 128) {                                                             \
    MACO_WGMMA_ROWS("m64n128k16", type, MACO_WHOLE, MACO_BEHIND(64, 65, 66, 67, 68),               \
                    MACO_SUMS16(0));                                                               \
  } else if constexpr (kWide == 208) {                                                             \
    MACO_WGMMA_ROWS("m64n208k16", type, MACO_MOST ", " MACO_EIGHT12,                               \
                    MACO_BEHIND(104, 105, 106, 107, 108), MACO_SUMS16(0), MACO_SUMS4(16),          \
                    MACO_SUMS4(20), MACO_SUMS(24), MACO_SUMS(25));                                 \
  } else if constexpr (kWide == 224) {                                                             \
    MACO_WGMMA_ROWS("m64n224k16", type, MACO_MOST ", " MACO_REGISTERS6,                            \
                    MACO_BEHIND(112, 113, 114, 115, 116), MACO_SUMS16(0), MACO_SUMS4(16),          \
                    MACO_SUMS4(20), MACO_SUMS4(24));                                               \
  } else if constexpr (kWide == 240) {                                                             \
    MACO_WGMMA_ROWS("m64n240k16", type, MACO_MOST ", " MACO_REGISTERS6 ", " MACO_EIGHT14,          \
                    MACO_BEHIND(120, 121, 122, 123, 124), MACO_SUMS16(0), MACO_SUMS4(16),          \
                    MACO_SUMS4(20), MACO_SUMS4(24), MACO_SUMS(28), MACO_SUMS(29));                 \
  } else if constexpr (kWide == 256) {                                                             \
    MACO_WGMMA_ROWS("m64n256k16", type, MACO_TWICE, MACO_BEHIND(128, 129, 130, 131, 132),          \
                    MACO_SUMS16(0), MACO_SUMS16(16));                                              \
  }
template <int kWide, bool kBf16>
MACO_FN void wgmma_rows(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide) {
  static_assert(MACO_HAS_WGMMA || kWide == 0, "this kernel is for sm_90a");
  static_assert(kWide % 16 == 0 && (kWide <= 128 || (kWide > 192 && kWide <= 256)),
                "no other width is asked for");
#if MACO_HAS_WGMMA
  if constexpr (kBf16) {
    MACO_WGMMA_ROWS_OF("bf16")
  } else {
    MACO_WGMMA_ROWS_OF("f16")
  }
#endif
}

// ---- profiles ---------------------------------------------------------------

#ifdef MACO_PROFILE
constexpr bool kProfile = true;
#else
constexpr bool kProfile = false;
#endif
// The SM's clock.
MACO_FN u64 sm_clock() {
  u64 t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
// Reads both clocks at one moment: when the GPU's clock, which may change only once in a
// microsecond, is seen to change.
MACO_FN void clock_pair(u64& ns, u64& clock) {
  const u64 before = now_ns();
  u32 looks = 0;
  do {
    ns = now_ns();
    clock = sm_clock();
  } while (ns == before && ++looks < 4096);
}
MACO_FN void stamp_store(void* to, u32 a, u32 b, u32 c, u32 d) {
  *(uint4*)to = make_uint4(a, b, c, d);
}

// ---- hooks of the CPU's debug modes -----------------------------------------

MACO_FN void trace_task_begin(int place) { (void)place; }
MACO_FN void trace_task_end(int place) { (void)place; }

}  // namespace maco

#endif  // MACO_CPU
