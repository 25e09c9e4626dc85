__global__ void k(const float x[][32], float (*y)[32]) {
  y[blockIdx.x][threadIdx.x] = 2.0f * x[blockIdx.x][threadIdx.x];
}
