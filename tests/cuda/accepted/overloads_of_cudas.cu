// Functions beside CUDA's of the same name, which call those, as vector headers have them.
inline __host__ __device__ float2 fminf(float2 a, float2 b) {
  return make_float2(fminf(a.x, b.x), fminf(a.y, b.y));
}
__device__ float3 fabs(float3 v) { return make_float3(fabs(v.x), fabs(v.y), fabs(v.z)); }
__device__ float exp(float2 v) { return exp(v.x) + v.y; }
template <class T>
__device__ T max(T a, T b, T c) {
  return max(max(a, b), c);
}
__device__ float clamp(float v, float lo, float hi) { return fmaxf(lo, fminf(v, hi)); }
__device__ float4 __ldcg(const float4* p, int n) { return __ldcg(p + n); }
__global__ void k(const float* x, float* y) {
  const int i = threadIdx.x;
  const float v = x[i];
  const float2 low = fminf(make_float2(v, 1.f), make_float2(0.5f, v));
  const float3 size = fabs(make_float3(v, -v, 2 * v));
  const float4 quad = __ldcg((const float4*)x, i / 4);
  y[i] = low.x + low.y + size.x + size.y + size.z + exp(0.f) + exp(make_float2(0.f, v)) +
         max(v, 2.f) + max(1.f, v, 3.f) + max(i, 7) + clamp(v, 0.f, 1.f) + quad.x + fabs(v) +
         fabsf(v);
}
