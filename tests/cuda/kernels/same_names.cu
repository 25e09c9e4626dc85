// same_names.cu and same_names_b.cu have everything in common but what it means.

#define N 4
#define SCALE(v) ((v) * 2.0f)
#define task value
#define x0 3

struct Tile {
  float v[N];
};

__constant__ float table[N] = {1.0f, 2.0f, 3.0f, 4.0f};

__device__ static float helper(const Tile& tile) {
  float task = 0.0f;
  for (int i = 0; i < N; ++i) task += tile.v[i] * table[i];
  return task;
}

__global__ void run(const float* in, float* out, int n) {
  __shared__ Tile tiles[32];
  const int i = blockIdx.x * 32 + threadIdx.x;
  if (i < n)
    for (int k = 0; k < N; ++k) tiles[threadIdx.x].v[k] = in[i * N + k];
  __syncthreads();
  if (i < n) out[i] = SCALE(helper(tiles[threadIdx.x])) + x0;
}
