__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  const auto twice = []<class T>(T v) { return v + v; };
  if (threadIdx.x < n) y[i] = twice(x[i]);
}
