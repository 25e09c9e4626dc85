#include <cuda_runtime.h>

#include <climits>

namespace {

struct Pair {
  float value;
  int index;

  __device__ bool before(const Pair& other) const {
    return value > other.value || (value == other.value && index < other.index);
  }
};

// No shuffle takes a struct: its members go one by one.
__device__ Pair shuffle_xor(Pair p, int mask) {
  return {__shfl_xor_sync(~0u, p.value, mask), __shfl_xor_sync(~0u, p.index, mask)};
}

}  // namespace

/// The place of the largest value of each row (the first of equals), and the first place whose
/// value is above `threshold`, or -1: found a warp of values at a time with a ballot.
__global__ void argmax_rows(const float* x, int* best, int* first_above, int rows, int n,
                            float threshold = 1.5f) {
  const int lane = threadIdx.x & 31;
  const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (row >= rows) return;  // whole warps

  Pair mine{-INFINITY, INT_MAX};
  for (int c = lane; c < n; c += 32) {
    const Pair candidate{x[row * n + c], c};
    if (candidate.before(mine)) mine = candidate;
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const Pair other = shuffle_xor(mine, mask);
    if (other.before(mine)) mine = other;
  }

  int found = -1;
  for (int base = 0; base < n && found < 0; base += 32) {
    const bool above = base + lane < n && x[row * n + base + lane] > threshold;
    const unsigned votes = __ballot_sync(0xffffffff, above);
    if (votes != 0) found = base + __ffs(votes) - 1;
  }

  if (lane == 0) {
    best[row] = mine.index;
    first_above[row] = found;
  }
}
