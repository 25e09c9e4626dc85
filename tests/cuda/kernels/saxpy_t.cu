// y = a * x + y0 + shift

template <typename T, int THREADS>
__global__ void saxpy(int n, T a, const T* x, const T* y0, T* y, int shift) {
  static_assert(THREADS % 32 == 0, "whole warps");
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  y[i] = a * x[i] + y0[i] + T(shift);
}

// A program may name its instantiations; MACO makes its own.
template __global__ void saxpy<double, 64>(int, double, const double*, const double*, double*, int);
