#include <cuda_runtime.h>

#define FULL 0xFFFFFFFFu

// What warps can ask each other. One warp a row of 32 numbers, two rows a block, and a result a
// question.
extern "C" __global__ void __launch_bounds__(64) votes(const int* v, int* out) {
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * 2 + threadIdx.x / 32;
  const int mine = v[row * 32 + lane];
  int* to = out + row * 32 * 8;

  /* matches: how many lanes have my number, and am I the first of them? */
  const unsigned peers = __match_any_sync(FULL, mine);
  to[0 * 32 + lane] = __popc(peers);
  to[1 * 32 + lane] = (__ffs((int)peers) - 1 == lane);

  /* votes */
  to[2 * 32 + lane] = __any_sync(FULL, mine == 7) + 2 * __all_sync(FULL, mine > -9);

  /* reductions of integers, of the whole warp and of the even lanes alone */
  const int sum = __reduce_add_sync(FULL, mine);
  int even = 0;
  if (lane % 2 == 0) even = __reduce_max_sync(0x55555555u, mine);
  __syncwarp();
  to[3 * 32 + lane] = sum;
  to[4 * 32 + lane] = even;

  /* shuffles: groups of 8, a source of my own, up with the lowest kept */
  int scan = mine;
  for (int d = 1; d < 8; d <<= 1) {
    const int other = __shfl_up_sync(FULL, scan, d, 8);
    if (lane % 8 >= d) scan += other;
  }
  to[5 * 32 + lane] = scan;
  to[6 * 32 + lane] = __shfl_sync(FULL, mine, mine & 31);

  /* 64 bits at a time, and bits */
  const long long wide = __shfl_xor_sync(FULL, ((long long)mine << 32) | (unsigned)lane, 3);
  to[7 * 32 + lane] = (int)(wide >> 32) * 64 + (int)(wide & 63) +
                      (int)__brev((unsigned)lane << 27) + __clz(lane + 1);
}
