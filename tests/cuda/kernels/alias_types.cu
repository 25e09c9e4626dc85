#include <cstddef>
#include <cstdint>

// The types that programmers use for bytes, for 32-bit integers and for numbers.

typedef unsigned int uint;
using index_t = long long;

struct Range {
  size_t begin, end;
};

__host__ __device__ inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

__device__ Range mine(size_t n, unsigned chunk) {
  const size_t begin = (size_t)blockIdx.x * chunk;
  return Range{begin, least(begin + chunk, n)};
}

// u8 through unsigned char*, int8_t* and std::uint8_t*.
__global__ void bytes(const unsigned char* a, const signed char* b, std::uint8_t* out, size_t n,
                      unsigned short chunk, bool flip, signed char add) {
  const Range range = mine(n, chunk);
  for (size_t i = range.begin + threadIdx.x; i < range.end; i += blockDim.x) {
    int v = (int)a[i] + (int)b[i] + add;
    if (flip) v = 255 - v;
    out[i] = (unsigned char)v;
  }
}

// i32 through int*, unsigned* and int32_t*.
__global__ void words(const int* a, const unsigned* b, uint* out, std::int32_t* high, index_t n,
                      long unsigned m, short by) {
  for (index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += (index_t)gridDim.x * blockDim.x) {
    out[i] = ((unsigned)a[i] * 2654435761u) ^ (b[i] >> by);
    high[i] = (int)__umulhi((unsigned)a[i], b[i]) + (int)(m % 7);
  }
}

// Numbers: float, double and integers where the graph gives integers or numbers.
__global__ void numbers(const float* x, float* y, int n, float f, double d, float whole,
                        double tiny, unsigned char small, uint64_t big, char letter) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = (float)((double)x[i] * d + tiny) * f + whole + small + (float)(big >> 40) +
           (letter == 'A' ? 1.0f : 0.0f);
}
