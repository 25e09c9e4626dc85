#define maco 2
__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * maco; }
