#include <cuda_bf16.h>
#include <cuda_fp16.h>

using bf16 = __nv_bfloat16;

// f16, two elements at a time: y = min(max(a * x + b, 0), 6). All in f16.
__global__ void affine_half2(const __half* x, const half* gain, __half* y, int pairs, float b) {
  const __half2* x2 = reinterpret_cast<const __half2*>(x);
  const half2* gain2 = (const half2*)gain;
  __half2* y2 = reinterpret_cast<__half2*>(y);
  const __half2 shift = __float2half2_rn(b);
  const __half2 zero = __floats2half2_rn(0.f, 0.f);
  const __half2 six = __half2half2(__float2half(6.0f));

  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x) {
    __half2 v = __hfma2(gain2[i % 32], x2[i], shift);
    v = __hmax2(v, zero);
    v = __hmin2(v, six);
    y2[i] = v;
  }
}

// bf16 with f32 in between: x * sigmoid(x) times the gate; operators and conversions of the class.
__global__ void swish_bf16(const bf16* x, const bf16* gate, bf16* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (2 * i + 1 < n) {
    const float2 v = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(x)[i]);
    const float2 g = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(gate)[i]);
    float2 r;
    r.x = v.x / (1.f + expf(-v.x)) * g.x;
    r.y = v.y / (1.f + expf(-v.y)) * g.y;
    reinterpret_cast<__nv_bfloat162*>(y)[i] = __float22bfloat162_rn(r);
  } else if (2 * i < n) {
    const float v = __bfloat162float(x[2 * i]);
    y[2 * i] = __float2bfloat16(v / (1.f + expf(-v))) * gate[2 * i];
  }
}

// From one to the other, with scalars of both types as parameters.
__global__ void mix(const __half* a, const bf16* b, float* y, int n, __half ha, __nv_bfloat16 hb) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    half t = a[i] * ha + __float2half_rn(0.25f);
    bf16 u = __hmul(b[i], hb);
    if (__hgt(t, __ushort_as_half((unsigned short)0x3C00U)))  // above 1
      t = __hsub(__float2half(2.f), t);
    y[i] = __half2float(t) + (float)u;
  }
}
