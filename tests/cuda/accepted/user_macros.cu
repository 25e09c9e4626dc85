#define T float
#define N 64
#define C 16
#define F 2.0f
#define Key 3
#define args 5
#define ctx 6
#define value 7
#define block 8
#define grid 9
#define count 10
#define all 11
#define memory 12
#define type 13
#define get 14
#define alive 15
#define kX 16
#define A 17
#define BOTH(name, factor)                                      \
  __device__ __forceinline__ T name(T v) { return factor * v; } \
  T name##_on_host(T v) { return host_factor() * v; }
float host_factor();
BOTH(doubled, F)
template <int S>
__device__ T turned(T v) {
  __shared__ T row[S];
  row[threadIdx.x] = v;
  if (__syncthreads_count(v > 0) == S) v += __syncthreads_or(v > value);
  return row[S - 1 - threadIdx.x];
}
struct Row {
  [[nodiscard]] int columns() const { return host_factor() > 0; }
  __device__ T at(const T* x) const { return x[blockIdx.x * blockDim.x + threadIdx.x]; }
  [[nodiscard]] static int rows() { return (int)host_factor(); }
};
__global__ void k(const T* x, T* y, int n) {
  const int i = blockIdx.x * N + threadIdx.x;
  if (i >= n) return;
  y[i] = doubled(turned<N>(Row().at(x))) + C + args + ctx + value + block + grid + count + all +
         memory + type + get + alive + kX + A + Key + __shfl_xor_sync(~0u, x[i], 1) + gridDim.x;
}
