struct Shape {
  __device__ virtual float of(float v) const = 0;
};

struct Twice : Shape {
  __device__ float of(float v) const override { return 2.0f * v; }
};

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  const Twice twice;
  const Shape& shape = twice;
  y[i] = shape.of(x[i]);
}
