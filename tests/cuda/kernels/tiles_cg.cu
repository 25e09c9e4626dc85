#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// A tile of threads a row: 32 for the first output, 16 for the second. The block's rows are
// summed up in shared memory for the third.
template <unsigned Width, typename Parent>
__device__ float row_total(const cg::thread_block_tile<Width, Parent>& tile, const float* row,
                           int n) {
  float v = 0.f;
  for (int c = tile.thread_rank(); c < n; c += tile.size()) v += row[c];
  return cg::reduce(tile, v, cg::plus<float>());
}

__global__ void tiles(const float* x, float* sums, float* peaks, float* blocks, int rows, int n) {
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto half = cg::tiled_partition<16>(block);

  __shared__ float totals[8];

  const int first = block.group_index().x * 8;

  // Four warps, two rows each.
  for (int k = 0; k < 2; ++k) {
    const int local = warp.meta_group_rank() * 2 + k;
    const int row = first + local;
    float v = row < rows ? row_total(warp, x + row * n, n) : 0.f;
    if (warp.thread_rank() == 0) {
      totals[local] = v;
      if (row < rows) sums[row] = v;
    }
    warp.sync();
  }
  block.sync();

  // Eight half warps, a row each: the largest absolute value by hand.
  const int row = first + half.meta_group_rank();
  if (row < rows) {
    float v = 0.f;
    for (int c = half.thread_rank(); c < n; c += half.num_threads())
      v = fmaxf(v, fabsf(x[row * n + c]));
    for (int offset = half.size() / 2; offset > 0; offset /= 2)
      v = fmaxf(v, half.shfl_xor(v, offset));
    if (half.thread_rank() == 0) peaks[row] = v;
  }

  if (block.thread_rank() == 0) {
    float v = 0.f;
    for (int i = 0; i < 8; ++i) v += totals[i];
    blocks[block.group_index().x] = v;
  }
  cg::sync(block);
}
