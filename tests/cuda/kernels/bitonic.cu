// bitonic sort, keys with values, one block per row
#include <type_traits>

template <class K>
struct less_than {
  __device__ constexpr bool operator()(K a, K b) const { return a < b; }
};
template <class K>
struct more_than {
  __device__ constexpr bool operator()(K a, K b) const { return b < a; }
};

template <class T>
__device__ void exchange(T& a, T& b) {
  T t = a;
  a = b;
  b = t;
}

template <class K, class V, unsigned Count, template <class> class Before = less_than>
struct Sorter {
  struct Storage {
    K keys[Count];
    V values[Count];
  };
  Storage& storage;
  Before<K> before;

  __device__ Sorter(Storage& s) : storage(s), before() {}

  __device__ void sort() {
    for (unsigned size = 2; size <= Count; size <<= 1)
      for (unsigned stride = size >> 1; stride > 0; stride >>= 1) {
        __syncthreads();
        for (unsigned t = threadIdx.x; t < Count / 2; t += blockDim.x) {
          unsigned low = 2 * t - (t & (stride - 1)), high = low + stride;
          bool up = (low & size) == 0;
          // equal keys stay by value, so that the result is one
          bool swapped = before(storage.keys[high], storage.keys[low]) ||
                         (storage.keys[high] == storage.keys[low] &&
                          storage.values[high] < storage.values[low]);
          if (swapped == up) {
            exchange(storage.keys[low], storage.keys[high]);
            exchange(storage.values[low], storage.values[high]);
          }
        }
      }
    __syncthreads();
  }
};

template <class K, unsigned Count, bool Down>
__global__ void sort_rows(const K* in, K* keys, int* order, int n) {
  using Sort = std::conditional_t<Down, Sorter<K, int, Count, more_than>, Sorter<K, int, Count>>;
  __shared__ typename Sort::Storage storage;
  const K last = Down ? K(-1000000) : K(1000000);
  for (unsigned i = threadIdx.x; i < Count; i += blockDim.x) {
    storage.keys[i] = i < n ? in[blockIdx.x * n + i] : last;
    storage.values[i] = i;
  }
  Sort(storage).sort();
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
    keys[blockIdx.x * n + i] = storage.keys[i];
    order[blockIdx.x * n + i] = storage.values[i];
  }
}
