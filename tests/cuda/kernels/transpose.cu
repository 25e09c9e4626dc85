#define TILE_DIM 32
#define BLOCK_ROWS 8

/* y = transpose of x. The tile has one more column than it needs, against bank conflicts. */
extern "C" __global__ void transposeTile(float* y, const float* x, int height, int width) {
  __shared__ float tile[TILE_DIM][TILE_DIM + 1];

  int col = blockIdx.x * TILE_DIM + threadIdx.x;
  int row = blockIdx.y * TILE_DIM + threadIdx.y;

  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) {
    if (row + j < height && col < width)
      tile[threadIdx.y + j][threadIdx.x] = x[(row + j) * width + col];
  }

  __syncthreads();

  col = blockIdx.y * TILE_DIM + threadIdx.x; /* the block, transposed */
  row = blockIdx.x * TILE_DIM + threadIdx.y;

  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) {
    if (row + j < width && col < height)
      y[(row + j) * height + col] = tile[threadIdx.x][threadIdx.y + j];
  }
}
