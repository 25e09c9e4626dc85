// An optimizer's step: momentum and weights are updated where they are.

struct Hyper {
  float rate, momentum, decay;
};

__device__ __constant__ const Hyper kHyper = {0.1f, 0.9f, 0.01f};

template <typename T>
struct Element {
  T* at;
  __device__ explicit Element(T* base, unsigned i) : at(base + i) {}
  __device__ operator T() const { return *at; }
  __device__ Element& operator=(T v) {
    *at = v;
    return *this;
  }
};

__global__ void step(float* w, float* m, const float* g, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;

  Element<float> weight(w, i), momentum(m, i);
  const float v = kHyper.momentum * momentum + g[i] + kHyper.decay * weight;
  momentum = v;
  weight = weight - kHyper.rate * v;
}

// A row is turned by one place, in place: every thread reads before any writes.
__global__ void rotate(float* rows, int width) {
  float* row = rows + blockIdx.x * width;
  float v = 0.f;
  if (threadIdx.x < width) v = row[(threadIdx.x + 1) % width];
  __syncthreads();
  if (threadIdx.x < width) row[threadIdx.x] = v;
}
