// Which parameter is written is seen in the body only: no pointer here is const, and most
// accesses go through structs, references and helpers.

template <typename T>
class View {
 public:
  __device__ View(T* data, int rows, int columns) : data_(data), rows_(rows), columns_(columns) {}
  __device__ T& operator()(int r, int c) { return data_[r * columns_ + c]; }
  __device__ bool has(int r, int c) const { return r < rows_ && c < columns_; }

 private:
  T* data_;
  int rows_, columns_;
};

__device__ float peek(float* p) { return *p; }
__device__ void add_to(float& place, float v) { place += v; }
__device__ void split(float v, int* whole, float* rest) {
  *whole = static_cast<int>(floorf(v));
  *rest = v - floorf(v);
}

// x and bias are read, whole and rest are written, total is read and written.
__global__ void split_parts(float* x, float* bias, int* whole, float* rest, float* total, int rows,
                            int columns) {
  View<float> from(x, rows, columns), fraction{rest, rows, columns};
  View<int> floors(whole, rows, columns);
  const int r = blockIdx.x;
  float* mine = &total[r];
  __shared__ union {
    float sums[32];
    int words[32];
  } scratch;

  float sum = 0.0f;
  for (int c = threadIdx.x; from.has(r, c); c += blockDim.x) {
    const float v = from(r, c) + peek(bias + c);
    split(v, &floors(r, c), &fraction(r, c));
    sum += fraction(r, c);
  }
  scratch.sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0)
    for (float s : scratch.sums) add_to(*mine, s);
}
