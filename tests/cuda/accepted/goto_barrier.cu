__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  s[threadIdx.x] = x[i];
  if (blockIdx.x % 2 == 0) goto out;
  __syncthreads();
  s[threadIdx.x] += 1.0f;
out:
  __syncthreads();
  y[i] = s[31 - threadIdx.x];
}
