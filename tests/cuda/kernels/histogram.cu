/* Histogram of bytes, after the classic sample: bins in shared memory, then one atomic a bin. */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define BINS 16

#define CHECK(call)                                              \
  do {                                                           \
    cudaError_t status_ = (call);                                \
    if (status_ != cudaSuccess) {                                \
      std::fprintf(stderr, "%s\n", cudaGetErrorString(status_)); \
      std::exit(1);                                              \
    }                                                            \
  } while (0)

typedef unsigned char byte;

static __device__ void addByte(int* bins, byte data) { atomicAdd(bins + (data % BINS), 1); }

__global__ void histogram(const byte* data, int* total, int count) {
  __shared__ int bins[BINS];
  int tid = threadIdx.x;

  for (int i = tid; i < BINS; i += blockDim.x) bins[i] = 0;
  __syncthreads();

  int stride = blockDim.x * gridDim.x;
  for (int i = blockIdx.x * blockDim.x + tid; i < count; i += stride) addByte(bins, data[i]);
  __syncthreads();

  for (int i = tid; i < BINS; i += blockDim.x)
    if (bins[i] != 0) atomicAdd(&total[i], bins[i]);
}

int main(int argc, char** argv) {
  int count = argc > 1 ? std::atoi(argv[1]) : 1 << 20;
  std::vector<byte> data(count);
  for (auto& d : data) d = (byte)(std::rand() & 255);

  byte* dData = nullptr;
  int* dTotal = nullptr;
  CHECK(cudaMalloc(&dData, count));
  CHECK(cudaMalloc(&dTotal, BINS * sizeof(int)));
  CHECK(cudaMemcpy(dData, data.data(), count, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(dTotal, 0, BINS * sizeof(int)));
  histogram<<<64, 128>>>(dData, dTotal, count);
  CHECK(cudaGetLastError());

  int total[BINS];
  CHECK(cudaMemcpy(total, dTotal, sizeof total, cudaMemcpyDeviceToHost));
  for (int i = 0; i < BINS; i++) printf("%2d %d\n", i, total[i]);
  cudaFree(dData);
  cudaFree(dTotal);
  return 0;
}
