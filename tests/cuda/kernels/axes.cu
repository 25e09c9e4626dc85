// Tensors of three and four axes, cut along two and three of them.

// y[b][a][c] = x[a][b][c], a piece of C / gridDim.z columns a block.
__global__ void swap_axes(const float* x, float* y, int rows, int heads, int columns) {
  const int a = blockIdx.x, b = blockIdx.y;
  if (a >= rows) return;
  const int piece = columns / gridDim.z;
  for (int c = blockIdx.z * piece + threadIdx.x; c < (blockIdx.z + 1) * piece; c += blockDim.x)
    y[(b * rows + a) * columns + c] = x[(a * heads + b) * columns + c];
}

// Each head of a row by its largest magnitude, two rows and one head a block.
__global__ void scale_heads(const float* x, float* y, int rows, int heads, int columns) {
  const int row = 2 * blockIdx.x + threadIdx.y, head = blockIdx.y;
  if (row >= rows) return;
  const float* from = x + (row * heads + head) * columns;
  float most = 0.0f;
  for (int c = 0; c < columns; ++c) most = fmaxf(most, fabsf(from[c]));
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    y[(row * heads + head) * columns + c] = most > 0.0f ? from[c] / most : 0.0f;
}

// y[a][b] = sum of x[a][b][c][d] over c in the block's part and all d.
__global__ void sum_inner(const float* x, float* y, int b_extent, int c_extent, int d_extent) {
  if (threadIdx.x > 0) return;
  const int a = blockIdx.x, b = blockIdx.y;
  float sum = 0.0f;
  for (int c = 1; c < c_extent; ++c)
    for (int d = 0; d < d_extent; ++d) sum += x[((a * b_extent + b) * c_extent + c) * d_extent + d];
  y[a * b_extent + b] = sum;
}
