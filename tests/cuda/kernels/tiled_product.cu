/**
 * Matrix multiplication: C = A * B, tiled, after the CUDA samples.
 * Edges need not be multiples of the tile.
 */
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h>

using std::cout;
using std::vector;

template <int TILE>
__global__ void MatrixMulCUDA(float* C, const float* A, const float* B, int hA, int wA, int wB) {
  int bx = blockIdx.x;
  int by = blockIdx.y;
  int tx = threadIdx.x;
  int ty = threadIdx.y;

  int row = by * TILE + ty;
  int col = bx * TILE + tx;
  float Csub = 0;

  for (int a = 0; a < wA; a += TILE) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    As[ty][tx] = (row < hA && a + tx < wA) ? A[row * wA + a + tx] : 0.0f;
    Bs[ty][tx] = (a + ty < wA && col < wB) ? B[(a + ty) * wB + col] : 0.0f;
    __syncthreads();

#pragma unroll
    for (int k = 0; k < TILE; ++k) {
      Csub += As[ty][k] * Bs[k][tx];
    }
    __syncthreads();
  }

  if (row < hA && col < wB) C[row * wB + col] = Csub;
}

// What follows runs on the host.

namespace {

struct Deleter {
  void operator()(float* p) const { cudaFree(p); }
};

std::unique_ptr<float, Deleter> upload(const vector<float>& v) {
  float* p = nullptr;
  if (cudaMalloc(&p, v.size() * sizeof(float)) != cudaSuccess) throw std::string("no memory");
  cudaMemcpy(p, v.data(), v.size() * sizeof(float), cudaMemcpyHostToDevice);
  return std::unique_ptr<float, Deleter>(p);
}

vector<float> product(const vector<float>& a, const vector<float>& b, int m, int k, int n) {
  vector<float> c(static_cast<size_t>(m) * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[l * n + j];
  return c;
}

}  // namespace

int main() {
  const int m = 100, k = 70, n = 130;
  vector<float> a(m * k), b(k * n), c(m * n);
  std::generate(a.begin(), a.end(), [] { return std::rand() / float(RAND_MAX) - 0.5f; });
  std::generate(b.begin(), b.end(), [] { return std::rand() / float(RAND_MAX) - 0.5f; });
  auto da = upload(a), db = upload(b), dc = upload(c);

  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  dim3 threads(16, 16);
  dim3 grid((n + 15) / 16, (m + 15) / 16);
  MatrixMulCUDA<16><<<grid, threads, 0, stream>>>(dc.get(), da.get(), db.get(), m, k, n);
  cudaMemcpyAsync(c.data(), dc.get(), c.size() * sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);

  const vector<float> want = product(a, b, m, k, n);
  float worst = 0;
  for (size_t i = 0; i < c.size(); ++i) worst = std::max(worst, std::fabs(c[i] - want[i]));
  cout << "largest difference: " << worst << '\n';
  assert(worst < 1e-3f);
  cudaStreamDestroy(stream);
}
