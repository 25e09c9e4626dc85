// Prefix sums of rows in dynamic shared memory, in three ways.

#include <cstdint>

// One name for the whole file; the second kernel calls the same memory something else.
extern __shared__ float s[];

// Inclusive, after Hillis and Steele: two halves of the buffer take turns.
__global__ void scan_inclusive(const float* in, float* out, int n) {
  const float* x = in + blockIdx.x * n;
  float* y = out + blockIdx.x * n;
  int now = 0, before = 1;
  const int t = threadIdx.x;
  s[t] = t < n ? x[t] : 0.0f;
  __syncthreads();
  for (int offset = 1; offset < blockDim.x; offset *= 2) {
    now = 1 - now;
    before = 1 - before;
    float v = s[before * blockDim.x + t];
    if (t >= offset) v += s[before * blockDim.x + t - offset];
    s[now * blockDim.x + t] = v;
    __syncthreads();
  }
  if (t < n) y[t] = s[now * blockDim.x + t];
}

// Exclusive, after Blelloch: two elements a thread, and the total in an output of its own. The
// buffer is raw bytes with the total behind the elements.
__global__ void scan_exclusive(const float* g_idata, float* g_odata, float* totals, int n) {
  extern __shared__ __align__(16) unsigned char raw[];
  float* temp = reinterpret_cast<float*>(raw);
  float* total = temp + n;
  int thid = threadIdx.x;
  int offset = 1;

  temp[2 * thid] = g_idata[blockIdx.x * n + 2 * thid];  // load input into shared memory
  temp[2 * thid + 1] = g_idata[blockIdx.x * n + 2 * thid + 1];

  for (int d = n >> 1; d > 0; d >>= 1) {  // build sum in place up the tree
    __syncthreads();
    if (thid < d) {
      int ai = offset * (2 * thid + 1) - 1;
      int bi = offset * (2 * thid + 2) - 1;
      temp[bi] += temp[ai];
    }
    offset *= 2;
  }
  if (thid == 0) {
    *total = temp[n - 1];
    temp[n - 1] = 0;
  }
  for (int d = 1; d < n; d *= 2) {  // traverse down tree and build scan
    offset >>= 1;
    __syncthreads();
    if (thid < d) {
      int ai = offset * (2 * thid + 1) - 1;
      int bi = offset * (2 * thid + 2) - 1;
      float t = temp[ai];
      temp[ai] = temp[bi];
      temp[bi] += t;
    }
  }
  __syncthreads();
  g_odata[blockIdx.x * n + 2 * thid] = temp[2 * thid];
  g_odata[blockIdx.x * n + 2 * thid + 1] = temp[2 * thid + 1];
  if (thid == blockDim.x - 1) totals[blockIdx.x] = *total;
}

// Inclusive over as many threads as there are elements: the others leave before the first
// barrier, and the barriers are of those that stay (n is no multiple of 32).
__global__ void scan_returned(const int32_t* in, int32_t* out, int n) {
  extern __shared__ int32_t counts[];
  if (threadIdx.x >= n) return;
  counts[threadIdx.x] = in[blockIdx.x * n + threadIdx.x];
  __syncthreads();
  for (int offset = 1; offset < n; offset <<= 1) {
    int32_t v = 0;
    if (threadIdx.x >= offset) v = counts[threadIdx.x - offset];
    __syncthreads();
    counts[threadIdx.x] += v;
    __syncthreads();
  }
  out[blockIdx.x * n + threadIdx.x] = counts[threadIdx.x];
}
