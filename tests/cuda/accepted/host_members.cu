#include <cstdio>
#include <iostream>
#include <vector>
struct Rows {
  float* p;
  int width;
  Rows() = default;
  explicit Rows(const std::vector<float>& v) : p(nullptr), width((int)v.size()) {
    cudaMalloc(&p, 4 * width);
  }
  __host__ __device__ Rows(float* q, int w) : p(q), width(w) {}
  void free() { cudaFree(p); }
  __host__ int host_only() {
    std::printf("x");
    return 1;
  }
  friend std::ostream& operator<<(std::ostream& o, const Rows& r) { return o << r.width; }
  template <class T>
  std::vector<T> copy() const {
    return {};
  }
  __device__ float& at(int i) { return p[blockIdx.x * width + i]; }
  std::vector<float> all() const;
  static Rows make(int n) { return Rows(std::vector<float>(n)); }
};
std::vector<float> Rows::all() const { return {}; }
__global__ void k(const float* x, float* y) {
  Rows r(y, 64);
  r.at(threadIdx.x) = x[blockIdx.x * 64 + threadIdx.x];
}
int main() {
  Rows r = Rows::make(5);
  std::cout << r;
  r.free();
}
