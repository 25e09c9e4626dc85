// Largest value and sum of exponentials of each row: two block-wide reductions behind each other.

#include <cuda_runtime.h>

#include <cfloat>

namespace reductions {

struct Max {
  static constexpr float identity = -FLT_MAX;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Sum {
  static constexpr float identity = 0.0f;
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Every thread gets the result. The array is one of this instantiation: there is no barrier at the
// end, so a reduction with another Op may follow at once, but not one with the same.
template <typename T, class Op>
__device__ T blockReduce(T value, Op op = Op()) {
  __shared__ T partial[32];
  const int lane = threadIdx.x % warpSize;
  const int warp = threadIdx.x / warpSize;
  for (int offset = 16; offset > 0; offset >>= 1)
    value = op(value, __shfl_down_sync(0xffffffffu, value, offset));
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  const int warps = (blockDim.x + warpSize - 1) / warpSize;
  value = partial[0];
  for (int i = 1; i < warps; ++i) value = op(value, partial[i]);
  return value;
}

}  // namespace reductions

// One block a row.
__global__ void row_sum(const float* __restrict__ x, float* __restrict__ largest,
                        float* __restrict__ sum, int columns) {
  using reductions::blockReduce;
  const float* row = x + static_cast<size_t>(blockIdx.x) * columns;

  float m = reductions::Max::identity;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) m = reductions::Max()(m, row[c]);
  m = blockReduce<float, reductions::Max>(m);

  float s = reductions::Sum::identity;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) s += expf(row[c] - m);
  s = blockReduce<float, reductions::Sum>(s);

  if (threadIdx.x == 0) {
    largest[blockIdx.x] = m;
    sum[blockIdx.x] = s;
  }
}
