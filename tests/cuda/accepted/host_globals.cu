#include <cuda_runtime.h>

#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {
std::map<std::string, int> registry = {{"k", 1}};
std::mutex guard;
thread_local int calls = 0;
}  // namespace

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = 2.0f * x[i];
}

class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual void launch(const float* x, float* y, int n, cudaStream_t stream) {
    const std::lock_guard<std::mutex> lock(guard);
    ++calls;
    void* args[] = {&x, &y, &n};
    cudaLaunchCooperativeKernel(reinterpret_cast<void*>(k), dim3(64), dim3(32), args, 0, stream);
    k<<<64, 32, 0, stream>>>(x, y, n);
    std::cerr << registry["k"] << '\n';
  }
};

Launcher launcher;
