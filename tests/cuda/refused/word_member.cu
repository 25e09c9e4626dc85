struct Shape {
  int blockDim;
};
__global__ void k(const float* x, float* y) {
  Shape s{2};
  y[threadIdx.x] = x[threadIdx.x] * s.blockDim;
}
