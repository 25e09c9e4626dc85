template <class T>
__device__ void add(T* to, T value) {
  *to = *to + value;
}
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  add(&y[i], x[i]);
}
