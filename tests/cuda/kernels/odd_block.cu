/* 48 threads a block: a whole warp and half of one. Barriers count 48, shuffles of the second warp
 * name 16 threads. */

#define THREADS 48

__device__ unsigned warp_mask() { return threadIdx.x < 32 ? 0xffffffffu : 0x0000ffffu; }

__device__ float block_max(float v, float* slots) {
  const unsigned mask = warp_mask();
  for (int offset = 8; offset > 0; offset >>= 1)
    v = fmaxf(v, __shfl_down_sync(mask, v, offset, 16)); /* three groups of 16 */
  if (threadIdx.x % 16 == 0) slots[threadIdx.x / 16] = v;
  __syncthreads();
  return fmaxf(fmaxf(slots[0], slots[1]), slots[2]);
}

extern "C" __global__ void odd(const float* x, float* y, int* positives, int* any, int width) {
  __shared__ float slots[3];
  const float* row = x + blockIdx.x * width;
  float v = threadIdx.x < width ? row[threadIdx.x] : -1e30f;

  const int count = __syncthreads_count(v > 0.0f);
  const int large = __syncthreads_or(v > 2.0f);
  const int all = __syncthreads_and(v > -2.5f || threadIdx.x >= width);
  const float m = block_max(v, slots);

  for (int c = threadIdx.x; c < width; c += THREADS) y[blockIdx.x * width + c] = row[c] - m;
  if (threadIdx.x == THREADS - 1) {
    positives[blockIdx.x] = count;
    any[blockIdx.x] = (large != 0) + 2 * (all != 0);
  }
}
