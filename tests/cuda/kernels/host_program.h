#pragma once
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#define CHECK(call)                                                                  \
  do {                                                                               \
    cudaError_t status = (call);                                                     \
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status)); \
  } while (0)
namespace util {
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t n) : n_(n) { CHECK(cudaMalloc(&p_, n * sizeof(T))); }
  ~DeviceBuffer() { cudaFree(p_); }
  T* get() const { return p_; }

 private:
  T* p_ = nullptr;
  size_t n_;
};
struct Timer {
  cudaEvent_t a, b;
  Timer() { cudaEventCreate(&a); }
};
inline constexpr int kWarp = 32;
template <typename T>
struct Sum {
  __host__ __device__ T operator()(T a, T b) const { return a + b; }
  __host__ __device__ static constexpr T identity() { return T(0); }
};
template <typename T>
struct Max {
  __host__ __device__ T operator()(T a, T b) const { return a > b ? a : b; }
  __host__ __device__ static T identity() { return T(-1e30); }
};
}  // namespace util
