#include <math_constants.h>

// Softmax in one pass over the row: each thread keeps a maximum and a sum that are scaled as the
// maximum grows (Milakov and Gimelshein). ROWS rows a block, one behind the other.

struct __align__(8) MD {
  float m;  // largest value so far
  float d;  // sum of exp(v - m)
};

__device__ __forceinline__ MD combine(MD a, MD b) {
  bool a_bigger = (a.m > b.m);
  MD bigger = a_bigger ? a : b;
  MD smaller = a_bigger ? b : a;
  MD res;
  res.d = bigger.d + smaller.d * __expf(smaller.m - bigger.m);
  res.m = bigger.m;
  return res;
}

template <int THREADS, int ROWS>
__launch_bounds__(THREADS) __global__
    void online_softmax(const float* __restrict x, float* __restrict y, int rows, int V) {
  __shared__ MD part[THREADS];
  int thread_id = threadIdx.x;

  for (int r = 0; r < ROWS; r++) {
    int vector_id = blockIdx.x * ROWS + r;
    if (vector_id >= rows) break;  // the same for all threads

    const float* xr = x + vector_id * V;
    float* yr = y + vector_id * V;

    MD md_partial;
    md_partial.m = -CUDART_NORM_HUGE_F;
    md_partial.d = 0.0F;
    for (int elem_id = thread_id; elem_id < V; elem_id += THREADS) {
      MD new_elem;
      new_elem.m = xr[elem_id];
      new_elem.d = 1.0F;
      md_partial = combine(md_partial, new_elem);
    }

    part[thread_id] = md_partial;
    __syncthreads();
#pragma unroll
    for (int half = THREADS / 2; half > 0; half /= 2) {
      if (thread_id < half) part[thread_id] = combine(part[thread_id], part[thread_id + half]);
      __syncthreads();
    }
    MD md_total = part[0];
    __syncthreads();  // the next row writes part again

    float d_total_inverse = __fdividef(1.0F, md_total.d);
    for (int elem_id = thread_id; elem_id < V; elem_id += THREADS)
      yr[elem_id] = __expf(xr[elem_id] - md_total.m) * d_total_inverse;
  }
}
