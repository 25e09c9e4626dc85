template <class T = float, int N = 64>
__global__ void k(const T* x, T* y) {
  const int i = blockIdx.x * N + threadIdx.x;
  asm volatile("" ::: "memory");
  asm volatile("");
  y[i] = x[i];
}
