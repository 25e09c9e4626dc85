namespace {
struct Mine {
  float v;
  __device__ Mine(float a = 0) : v(a) {}
};
enum class Kind { kA, kB };
}  // namespace
template <class T>
struct Wrap {
  T f;
};
template <class T, class F>
__device__ T part(T v, F&& f) {
  __shared__ float s[64];
  s[threadIdx.x] = f(v).v;
  __syncthreads();
  const float w = s[63 - threadIdx.x];
  __syncthreads();
  return T(w);
}
template <class T, Kind K, int...>
struct Reduce {
  template <class U>
  __device__ static U run(U v);
  __device__ static T twice(T v) { return run(run(v)); }
};
template <class A, Kind Q, int... N>
template <class B>
__device__ B Reduce<A, Q, N...>::run(B v) {
  __shared__ B s[64];
  s[threadIdx.x] = v;
  __syncthreads();
  const B w = s[63 - threadIdx.x];
  __syncthreads();
  return w;
}
template <class T>
struct Half;
template <class T>
struct Half<T*> {
  __device__ static T get(T v) {
    __shared__ T s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    return s[threadIdx.x ^ 1];
  }
};
template <class T, class F>
__device__ T wrapped(T v, Wrap<F> w) {
  __shared__ T s[64];
  s[threadIdx.x] = w.f(v);
  __syncthreads();
  return s[threadIdx.x ^ 1];
}
template <class W>
__device__ float whole(float v, W w) {
  __shared__ float s[64];
  s[threadIdx.x] = w.f(v);
  __syncthreads();
  return s[threadIdx.x ^ 1];
}
template <class T>
__device__ T inner(T v) {
  auto g = [=](Mine m) { return Mine(m.v + (float)sizeof(T)); };
  const Mine m = part(Mine((float)v), g);
  return (T)part(m, [](Mine q) { return Mine(q.v * 2); }).v;
}
__global__ void k(const float* x, float* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  float v = x[i];
  v = inner(v);
  v += (float)inner((double)v);
  v = Reduce<float, Kind::kB, 1, 2>::twice(v);
  v += Half<float*>::get(v);
  auto three = [](float a) { return a + 3; };
  v += wrapped(v, Wrap<decltype(three)>{three});
  v += whole(v, Wrap<decltype(three)>{three});
  float s = v;
  auto gen = [&](auto a) {
    __shared__ float q[64];
    q[threadIdx.x] = a;
    __syncthreads();
    return q[63 - threadIdx.x];
  };
  y[i] = gen(s);
}
