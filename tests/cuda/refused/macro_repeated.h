#define KERNEL(name) __global__ void name
KERNEL(NAME)(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
}
#undef KERNEL
