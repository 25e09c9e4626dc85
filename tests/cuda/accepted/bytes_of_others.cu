struct Particle {
  double at;
  long long id;
};
__global__ void k(const double* x, const Particle* p, double* y, unsigned long long* count, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x >= n) return;
  y[i] = threadIdx.x % 2 ? x[i] : p[i].at;
  count[i] = p[i].id & 255;
}
