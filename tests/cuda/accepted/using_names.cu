namespace lib {
namespace inner {
template <class T>
struct Traits {
  static constexpr T two = 2;
};
struct Plain {
  __device__ float of(float v) const { return v + 1; }
};
template <class T>
struct Box {
  T value;
  __device__ Box(T v) : value(v) {}
};
__device__ float helper(float v) { return v * 3; }
}  // namespace inner
}  // namespace lib
namespace li = lib::inner;
using li::Plain;
using lib::inner::Box;
using lib::inner::helper;
using lib::inner::Traits;
template <class T>
using Two = Traits<T>;
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  const Box box(x[i]);
  if (threadIdx.x < n)
    y[i] = Traits<int>::two * Two<float>::two * helper(box.value) + Plain().of(x[i]) +
           li::helper(1.0f);
}
