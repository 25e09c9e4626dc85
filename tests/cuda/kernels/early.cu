// Threads, warps and blocks that leave before, between and after barriers.

// Whole blocks leave: the grid is larger than the rows.
__global__ void blocks_leave(const float* x, float* y, int rows, int n) {
  const int row = blockIdx.x;
  if (row >= rows) return;

  __shared__ float sums[64];
  float v = 0.f;
  for (int c = threadIdx.x; c < n; c += blockDim.x) v += x[row * n + c];
  sums[threadIdx.x] = v;
  __syncthreads();
  if (threadIdx.x >= 32) return;  // a warp leaves after the last barrier that it would be needed at

  v = sums[threadIdx.x] + sums[threadIdx.x + 32];
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
  if (threadIdx.x) return;
  y[row] = v;
}

// Some threads leave, in the middle of warps; those that stay go on with barriers in a loop. Each
// step drops the upper half of those that are left, down to one.
__global__ void threads_leave(const float* x, float* y, int n) {
  __shared__ float v[96];
  const int t = threadIdx.x;
  if (t >= n) return;
  v[t] = x[blockIdx.x * n + t];
  __syncthreads();
  for (int left = n; left > 1;) {
    const int half = (left + 1) / 2;
    if (t >= half) return;
    if (t + half < left) v[t] += v[t + half];
    left = half;
    __syncthreads();
  }
  y[blockIdx.x] = v[0];
}

// One loop a block, of a length that the data says, the same for all threads of the block: found
// out by a vote.
__global__ void until_small(const float* x, float* y, int* steps, int n) {
  const int t = threadIdx.x;
  float v = t < n ? fabsf(x[blockIdx.x * n + t]) : 0.f;
  int count = 0;
  do {
    if (!__syncthreads_or(v > 0.5f)) break;
    v *= 0.5f;
    ++count;
  } while (true);
  if (t < n) y[blockIdx.x * n + t] = v;
  if (t == 0) steps[blockIdx.x] = count;
}

// A switch, a goto and a barrier on every way through.
__global__ void jumps(const int* x, int* y, int mode) {
  __shared__ int held[33];
  const int t = threadIdx.x;
  held[t] = x[blockIdx.x * blockDim.x + t];
  switch (mode) {
    case 0: __syncthreads(); goto done;
    case 1: {
      __syncthreads();
      const int next = held[(t + 1) % blockDim.x];
      __syncthreads();
      held[t] = next;
      break;
    }
    default: held[t] = -held[t];
  }
  __syncthreads();
done:
  y[blockIdx.x * blockDim.x + t] = held[blockDim.x - 1 - t];
}
