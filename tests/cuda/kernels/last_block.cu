// The sum of everything in one launch: each block sums a part, and the block that is done last
// adds up the parts, in their order. After the CUDA samples (threadFenceReduction).
#include <cuda_runtime.h>

__device__ float block_sum(float v) {
  static __shared__ float slots[32];
  const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
  for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
  if (lane == 0) slots[warp] = v;
  __syncthreads();
  v = threadIdx.x < (blockDim.x >> 5) ? slots[lane] : 0.f;
  if (warp == 0)
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
  __syncthreads();
  return v;  // in thread 0
}

__global__ void sum_all(const float* x, volatile float* parts, unsigned int* done, float* total,
                        int n) {
  __shared__ bool is_last;

  float v = 0.f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
  v = block_sum(v);

  if (threadIdx.x == 0) {
    parts[blockIdx.x] = v;
    __threadfence();
    // Wraps to zero with the last block, ready for the next launch.
    is_last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();

  if (is_last) {
    v = 0.f;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) v += parts[i];
    v = block_sum(v);
    if (threadIdx.x == 0) *total = v;
  }
}
