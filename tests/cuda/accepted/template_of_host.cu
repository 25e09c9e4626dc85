template <class T, int N>
__global__ void k(const T* x, T* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = N * x[i];
}
template <class T, int N>
void k(int n, const T* x, T* y, cudaStream_t stream) {
  k<T, N><<<n / 32, 32, 0, stream>>>(x, y, n);
}
void run(const float* x, float* y) { k<float, 2>(64, x, y, nullptr); }
