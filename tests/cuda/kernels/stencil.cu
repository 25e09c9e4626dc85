// A five-point stencil with a halo in shared memory; outside of the field the nearest value stands.
#include <cuda_runtime.h>

constexpr int kRows = 4;  // of the field, a block
constexpr int kColumns = 32;

// Middle, above, below, left, right.
__constant__ float weight[5] = {0.5f, 0.125f, 0.125f, 0.125f, 0.125f};

__device__ __forceinline__ int clampTo(int v, int lo, int hi) { return max(lo, min(v, hi)); }

__global__ void __launch_bounds__(kRows* kColumns)
    stencil2d(const float* __restrict__ field, float* __restrict__ next, int height, int width) {
  __shared__ float halo[kRows + 2][kColumns + 2];
  const int r0 = blockIdx.y * kRows - 1, c0 = blockIdx.x * kColumns - 1;

  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = thread; i < (kRows + 2) * (kColumns + 2); i += blockDim.x * blockDim.y) {
    const int r = i / (kColumns + 2), c = i % (kColumns + 2);
    halo[r][c] = field[clampTo(r0 + r, 0, height - 1) * width + clampTo(c0 + c, 0, width - 1)];
  }
  __syncthreads();

  const int r = threadIdx.y + 1, c = threadIdx.x + 1;
  if (r0 + r >= height || c0 + c >= width) return;
  float v = weight[0] * halo[r][c];
  v += weight[1] * halo[r - 1][c];
  v += weight[2] * halo[r + 1][c];
  v += weight[3] * halo[r][c - 1];
  v += weight[4] * halo[r][c + 1];
  next[(r0 + r) * width + c0 + c] = v;
}

// Rows alone, without shared memory: the mean of a row with its neighbours.
__global__ void stencil1d(const float* x, float* y, int n, int width) {
  for (int r = blockIdx.x * 4; r < min(n, static_cast<int>(blockIdx.x + 1) * 4); ++r)
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
      float v = x[r * width + c];
      int count = 1;
      if (r > 0) v += x[(r - 1) * width + c], ++count;
      if (r + 1 < n) v += x[(r + 1) * width + c], ++count;
      y[r * width + c] = v / count;
    }
}
