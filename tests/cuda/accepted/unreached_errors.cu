#include <mpi.h>
#include <omp.h>
#include <cuda/barrier>

#include "not_there.h"

MPI_Comm world;

int blocks(int n, int most) { return min(max(n / 256, 1), most); }
void advise(float* p) {
  assert(isfinite(*p));
  cudaMemAdvise(p, 4, cudaMemAdviseSetReadMostly, 0);
#pragma omp parallel for
  for (int i = 0; i < omp_get_max_threads(); ++i) p[i] = no_such_thing(i);
}

__global__ void other(float* y) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  bar.arrive_and_wait();
  unsigned lane;
  asm("mov.u32 %0, %laneid;" : "=r"(lane));
  y[lane] = undeclared;
}
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = 2.0f * x[i];
}
