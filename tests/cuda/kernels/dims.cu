// Sizes that are known at launch only: tokens rows of x, and a cache of which `length` rows count.
#include <cstddef>

namespace decode::kernels {

// Grid: (rows / 4, columns / 16, heads). A thread an element.
__global__ void rotate_heads(const float* x, float* y, int tokens, int heads, int head_dim,
                             int first_position) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  const int col = blockIdx.y * blockDim.x + threadIdx.x;
  const int head = blockIdx.z;
  if (row >= tokens || col >= head_dim) return;
  const int half = head_dim / 2;
  const size_t at = (static_cast<size_t>(row) * heads + head) * head_dim;
  const int pair = col % half;
  const float angle =
      static_cast<float>(first_position + row) * powf(10000.0f, -static_cast<float>(pair) / half);
  float sine, cosine;
  sincosf(angle, &sine, &cosine);
  const float a = x[at + pair], b = x[at + pair + half];
  y[at + col] = col < half ? a * cosine - b * sine : a * sine + b * cosine;
}

// Row blockIdx.x of x becomes row `at` + blockIdx.x of the cache.
__global__ void append(float* cache, const float* x, int at, int width) {
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    cache[static_cast<size_t>(at + blockIdx.x) * width + c] =
        x[static_cast<size_t>(blockIdx.x) * width + c];
}

// The first `length` rows of the cache fade, four a block.
__global__ void fade(float* cache, int length, int width, float factor, bool whole) {
  for (int r = 4 * blockIdx.x; r < min(length, 4 * (int)blockIdx.x + 4); ++r)
    for (int c = threadIdx.x; c < width; c += blockDim.x)
      if (whole || c % 2 == 0) cache[r * width + c] *= factor;
}

// y[row] = dot(x[row], the mean of the cache's first `length` rows)
__global__ void score(const float* x, const float* cache, float* y, int tokens, int length,
                      int width) {
  __shared__ float partial[64];
  const int row = blockIdx.x;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    float mean = 0.0f;
    for (int r = 0; r < length; ++r) mean += cache[r * width + c];
    sum += x[row * width + c] * (mean / static_cast<float>(length));
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int n = blockDim.x / 2; n > 0; n /= 2) {
    if (threadIdx.x < n) partial[threadIdx.x] += partial[threadIdx.x + n];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[row] = partial[0];
}

}  // namespace decode::kernels
