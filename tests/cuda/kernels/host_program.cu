#include <cassert>
#include <limits>
#include "host_program.h"
using namespace util;
typedef float Tile[32][33];
__device__ const float kBlend[4] = {0.1f, 0.2f, 0.3f, 0.4f};
__device__ constexpr float kTable[] = {1.f, 2.f, 4.f, 8.f};
__constant__ float kWeights[4] = {1.f, -1.f, 0.5f, -0.5f};
enum Mode { kCopy, kScale = 3 };
extern "C" {
__device__ float helper(float v) { return v * 0.5f; }
__global__ void in_c(const float* const __restrict__ x, float* __restrict__ const y, size_t n,
                     bool on, Mode mode, unsigned char c = 2) {
  assert(n > 0 && "rows");
  __shared__ Tile tile;
  __shared__ struct {
    float a[32];
    int n;
  } rec;
  alignas(8) __shared__ double dd[2];
  __shared__ alignas(16) float s[32], *pointer, t[2][16];
  volatile __shared__ int flag;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x][0] = x[i];
  rec.a[threadIdx.x] = helper(x[i]);
  s[threadIdx.x] = kBlend[threadIdx.x & 3];
  t[threadIdx.x / 16][threadIdx.x % 16] = kTable[threadIdx.x & 3];
  dd[threadIdx.x & 1] = 1.0;
  if (threadIdx.x == 0) {
    pointer = s;
    rec.n = 31;
    flag = on;
  }
  __syncthreads();
  float v = tile[31 - threadIdx.x][0] + rec.a[rec.n - threadIdx.x] + pointer[threadIdx.x] +
            t[1][threadIdx.x & 15] + kWeights[threadIdx.x & 3];
  switch (mode) {
    case kScale: v *= 2.0f;
    case kCopy: v += flag; break;
    default: v = 0;
  }
  y[i] = v + c;
}
}
template <typename T, template <typename> class Op, int N>
__device__ T reduce_array(T (&a)[N]) {
  Op<T> op;
  T v = Op<T>::identity();
#pragma unroll
  for (const auto e : a) v = op(v, e);
  return v;
}
template <typename... Ts>
__device__ float total(Ts&&... ts) {
  return (static_cast<float>(ts) + ...);
}
struct Parts {
  float whole;
  int part;
};
__device__ Parts pair_of(float v) { return {v, (int)v}; }
template <template <typename> class Op>
__global__ void __launch_bounds__(kWarp, 2) folds(const float* x, float* y) {
  float a[4];
  const int i = blockIdx.x * kWarp + threadIdx.x;
  for (int j = 0; j < 4; ++j) a[j] = x[i] * (j + 1);
  auto [whole, part] = pair_of(x[i]);
  float r = reduce_array<float, Op>(a);
  struct Local {
    float q;
    __device__ float get() const { return q + 1; }
  } local{r};
  unsigned ballot = __ballot_sync(~0u, x[i] > 0);
  int rank = __popc(ballot & ((1u << threadIdx.x) - 1));
  const int arr[] = {1, 2};
  r = total(r, 1, 2.5, rank, __clz(ballot), __ffs(ballot), __brev(ballot) & 7, part, whole,
            arr[threadIdx.x & 1]);
  y[i] = fmaxf(fminf(r + local.get(), 1e6f), -INFINITY);
}
__device__ float atomicMaxFloat(float* address, float val) {
  int* as_int = (int*)address;
  int old = *as_int, assumed;
  do {
    assumed = old;
    old = atomicCAS(as_int, assumed, __float_as_int(fmaxf(val, __int_as_float(assumed))));
  } while (assumed != old);
  return __int_as_float(old);
}
__global__ void max_all(const float* x, float* best, int n) {
  __shared__ float m;
  if (!threadIdx.x) m = -3.402823466e+38F;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicMaxFloat(&m, x[i]);
  __syncthreads();
  if (threadIdx.x == 0) *best = m;
}
class Runner {
 public:
  void run();
  DeviceBuffer<float> x{5};
};
void Runner::run() {
  in_c<<<1, 32>>>(x.get(), x.get(), 1, true, kCopy);
  folds<Max><<<1, 32>>>(x.get(), x.get());
  CHECK(cudaDeviceSynchronize());
  std::cout << "done\n";
}
