#include <cuda_fp16.h>
#include <cstdint>
#define N 32
#define TIDX threadIdx.x
#define LOOP(i, n) for (int i = TIDX; i < (n); i += blockDim.x)
#define UNROLLED(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)
#define SHARED_ARRAY(T, name, n) __shared__ T name[n]
#define SHARED_2(T, a, b) \
  __shared__ T a[N];      \
  __shared__ T b[N]
#define DEV __device__ __forceinline__
#define DECLARE_OP(name, expr)                                    \
  struct name {                                                   \
    DEV float operator()(float a, float b) const { return expr; } \
  };
DECLARE_OP(AddOp, a + b)
DECLARE_OP(MulOp, a* b)
struct Vec {
  float x, y;
  friend DEV Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y}; }
  DEV Vec& operator+=(const Vec& o) {
    x += o.x;
    y += o.y;
    return *this;
  }
  DEV explicit operator float() const { return x * y; }
};
DEV bool operator<(const Vec& a, const Vec& b) { return a.x < b.x; }
template <class Op>
DEV float block(float v, Op op) {
  SHARED_ARRAY(float, part, N);
  part[TIDX] = v;
  __syncthreads();
  for (int d = N / 2; d > 0; d >>= 1) {
    if (TIDX < d) part[TIDX] = op(part[TIDX], part[TIDX + d]);
    __syncthreads();
  }
  return part[0];
}
template <class T>
__global__ void k(const T* x, T* y, int n);
template <>
__global__ void k<float>(const float* x, float* y, int n) {
  SHARED_2(float, a, b);
  const int base = blockIdx.x * n;
  LOOP(i, n) {
    a[i] = x[base + i];
    b[i] = -x[base + i];
  }
  __syncthreads();
  Vec v{a[31 - TIDX], b[TIDX]};
  v += v + Vec{1, 2};
  float s = block(v.x, AddOp()) + block(v.y * 0.01f, MulOp{});
  UNROLLED(j, 4) s += j * (v < Vec{0, 0});
  LOOP(i, n) y[base + i] = s + (float)v;
}
