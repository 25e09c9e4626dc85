#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  auto grid = cg::this_grid();
  for (int at = grid.thread_rank(); at < 64 * n; at += grid.size()) y[at] = x[at] + 0 * i;
}
