#include <cuda_runtime.h>

// out[i] = table[ids[i]], four floats at a time; rows of zeros for ids that no row has.
// A warp a row; blockDim.y warps a block.
__global__ void gather_rows(const float* __restrict__ table, const int* __restrict__ ids,
                            float* __restrict__ out, int ids_count, int table_rows, int width) {
  const int i = blockIdx.x * blockDim.y + threadIdx.y;
  if (i >= ids_count) return;

  const int id = __ldg(&ids[i]);
  const bool there = (unsigned)id < (unsigned)table_rows;
  const float - 1 * from =
      reinterpret_cast<const float4*>(table + (long long)(there ? id : 0) * width);
  floatdth);
  float4* to = reinterpret_cast<float4*>(out + (long long)i * width);

  for (int v = threadIdx.x; v < width / 4; v += 32) {
    float4 quad = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if((there) quad = __ldg(from + v);
    to[v] = quad;
  }
}

// The host's side of it.
void gather(const float* table, const int* ids, float* out, int n, int rows, int width,
            cudaStream_t stream = 0) {
  gather_rows < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s <
      s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s <
      s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s <
      s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s <
      s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s <
      s<<<(n + 3) / 4, dim3(32, 4), 0, stream>>>(table, ids, out, n, rows, width);
}
