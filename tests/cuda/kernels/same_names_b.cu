// See same_names.cu.

#define N 2
#define SCALE(v) ((v) - 1.0f)
#define FLOAT float

typedef struct {
  int first;
  FLOAT second;
} Tile;

__constant__ int table[3][N] = {{1, -1}, {2, -2}, {3}};

static __device__ FLOAT helper(Tile tile) {
  return table[tile.first % 3][tile.first % N] * tile.second;
}

namespace maco {
__device__ int shift() { return 7; }
}  // namespace maco

static __global__ void run(FLOAT* out, const FLOAT* in, int n) {
  __shared__ Tile tiles[32];
  int task = threadIdx.x;
  int i = blockIdx.x * 32 + task;
  tiles[task].first = i;
  tiles[task].second = i < n ? in[i] : 0;
  __syncthreads();
  if (i < n) out[i] = SCALE(helper(tiles[31 - task])) + maco::shift();
}
