struct Named {
  __device__ float operator()(float a) const { return a + 1; }
};
template <class T, class F, int = 0>
__device__ T turn(T v, F f) {
  __shared__ T s[64];
  s[threadIdx.x] = f(v);
  __syncthreads();
  const T w = s[63 - threadIdx.x];
  __syncthreads();
  return w;
}
template <class T>
__device__ float outer(T v) {
  auto inside = [&](float u) {
    __shared__ float s[64];
    s[threadIdx.x] = u + sizeof(T);
    __syncthreads();
    return s[63 - threadIdx.x];
  };
  auto any = [&](auto u) {
    __shared__ float s[64];
    s[threadIdx.x] = u + sizeof(T);
    __syncthreads();
    return s[63 - threadIdx.x];
  };
  return inside(v.f) + any(v.f);
}
struct A {
  float f;
};
struct B {
  float f, g;
};
__global__ void k(const float* x, float* y) {
  struct Local {
    __device__ int operator()(int a) const { return a * 2; }
  };
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = turn(x[i], Named()) + turn((int)threadIdx.x, Local()) + outer(A{x[i]}) + outer(B{x[i], 1});
}
