template <class T>
struct SharedMemory {
  __device__ inline operator T*() {
    extern __shared__ int __smem[];
    return (T*)__smem;
  }
  __device__ inline operator const T*() const {
    extern __shared__ int __smem[];
    return (T*)__smem;
  }
};
template <>
struct SharedMemory<double> {
  __device__ inline operator double*() {
    extern __shared__ double __smem_d[];
    return (double*)__smem_d;
  }
  __device__ inline operator const double*() const {
    extern __shared__ double __smem_d[];
    return (double*)__smem_d;
  }
};
template <class T, bool kStage>
__device__ T staged(T v) {
  if constexpr (kStage) {
    __shared__ T rows[32];
    rows[threadIdx.x] = v;
    __syncthreads();
    return rows[31 - threadIdx.x];
  } else {
    return v;
  }
}
template <class T>
__global__ void k(const T* x, T* y, int n) {
  T* s = SharedMemory<T>();
  const int i = blockIdx.x * n + threadIdx.x;
  s[threadIdx.x] = staged<T, false>(x[i]);
  __syncthreads();
  y[i] = s[n - 1 - threadIdx.x];
}
