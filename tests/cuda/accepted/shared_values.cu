template <class T>
struct Two {
  T a, b;
};
template <int N, class... Ts>
__device__ float many(Ts... vs) {
  __shared__ float s[N];
  if (threadIdx.x < N) s[threadIdx.x] = (vs + ...);
  __syncthreads();
  const float r = s[(threadIdx.x + 1) % N];
  __syncthreads();
  return r;
}
template <template <class> class W>
__device__ float held(float v) {
  __shared__ W<float> w[64];
  w[threadIdx.x] = {v, v};
  __syncthreads();
  return w[63 - threadIdx.x].b;
}
template <auto V>
__device__ float value(float v) {
  __shared__ float s[64];
  s[threadIdx.x] = v + (float)V;
  __syncthreads();
  return s[63 - threadIdx.x];
}
enum E : short { kOne = 1 };
template <float (*F)(float)>
__device__ float call(float v) {
  __shared__ float s[64];
  s[threadIdx.x] = F(v);
  __syncthreads();
  return s[63 - threadIdx.x];
}
__device__ float f1(float v) { return v + 1; }
static __device__ float f2(float v) { return v * 2; }
__global__ void k(const float* x, float* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  float (*table[])(float) = {f1, f2, [](float v) {
                               __shared__ float s[64];
                               s[threadIdx.x] = v;
                               __syncthreads();
                               return s[63 - threadIdx.x];
                             }};
  y[i] = many<32>(x[i], 1, 2.5f) + many<64>(x[i]) + many<64>(1, x[i]) + held<Two>(x[i]) +
         value<5>(x[i]) + value<kOne>(x[i]) + value<true>(x[i]) + value<'c'>(x[i]) +
         value<5u>(x[i]) + value<-3ll>(x[i]) + call<f1>(x[i]) + call<f2>(x[i]) + table[2](x[i]);
}
