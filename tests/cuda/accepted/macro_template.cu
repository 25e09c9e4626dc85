#define KERNEL_BODY(T, SUFFIX, ...)                                                             \
  template <int B>                                                                              \
  __global__ void __launch_bounds__(B)                                                          \
      run_##SUFFIX(const T* __restrict__ x, T* __restrict__ y, int n) {                         \
    extern __shared__ T dyn_##SUFFIX[];                                                         \
    __shared__ T fixed[B];                                                                      \
    const int i = blockIdx.x * B + threadIdx.x;                                                 \
    if (i >= n) {                                                                               \
      return;                                                                                   \
    }                                                                                           \
    auto f = [=] __device__(T a) { return __VA_ARGS__; };                                       \
    dyn_##SUFFIX[threadIdx.x] = f(x[i]);                                                        \
    fixed[threadIdx.x] = x[i];                                                                  \
    __syncthreads();                                                                            \
    _Pragma("unroll") for (int j = 0; j < 2; ++j) y[i] = dyn_##SUFFIX[B - 1 - threadIdx.x] +    \
                                                         fixed[B - 1 - threadIdx.x] +           \
                                                         __shfl_down_sync(0xffffffff, x[i], 1); \
  }
KERNEL_BODY(float, f32, a * 2 + 1)
KERNEL_BODY(int, i32, a + 1)
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define UNIQUE(p) CAT(p, __LINE__)
#define COPY(i)            \
  float UNIQUE(v_) = x[i]; \
  y[i] = UNIQUE(v_)
__global__ void other(const float* x, float* y, int n) { COPY(blockIdx.x * 32 + threadIdx.x); }
