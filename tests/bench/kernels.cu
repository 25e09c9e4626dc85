// The launches of kernels.maco as a user has them: twelve ordinary kernels on a stream, captured
// into a CUDA graph. Prints the median of its launches in microseconds, one behind the other (what
// a stream gives) and, in a second graph, side by side.
//   kernels FOLDER LAUNCHES
// FOLDER has a file of bytes for each input; outputs are written beside them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <stdint.h>

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

// Their files know nothing of each other; what they include is included already.
namespace of_row_sum {
#include "../cuda/kernels/row_sum.cu"
}
namespace of_transpose {
#include "../cuda/kernels/transpose.cu"
}
namespace of_histogram {
#include "../cuda/kernels/histogram.cu"
}
namespace of_stencil {
#include "../cuda/kernels/stencil.cu"
}
namespace of_saxpy {
#include "../cuda/kernels/saxpy_t.cu"
}
namespace of_tiles {
#include "../cuda/kernels/tiles_cg.cu"
}
namespace of_softmax {
#include "../cuda/kernels/softmax.cu"
}
namespace of_scan {
#include "../cuda/kernels/scan.cu"
}
namespace of_product {
#include "../cuda/kernels/tiled_product.cu"
}
namespace of_quantize {
#include "../cuda/kernels/quantize.cu"
}
namespace of_gather {
#include "../cuda/kernels/gather_rows.cu"
}
namespace of_argmax {
#include "../cuda/kernels/argmax_rows.cu"
}

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

std::string folder;
struct Tensor {
  std::string name;
  size_t bytes;
  char* at;
};
std::vector<Tensor> outputs;

template <class T>
T* memory(size_t count) {
  void* at = nullptr;
  check(cudaMalloc(&at, count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(at, 0, count * sizeof(T)), "cudaMemset");
  return static_cast<T*>(at);
}
template <class T>
T* input(const std::string& name, size_t count) {
  std::vector<T> values(count);
  std::FILE* file = std::fopen((folder + "/" + name).c_str(), "rb");
  if (!file || std::fread(values.data(), sizeof(T), count, file) != count) {
    std::fprintf(stderr, "can't read %s\n", name.c_str());
    std::exit(1);
  }
  std::fclose(file);
  T* at = memory<T>(count);
  check(cudaMemcpy(at, values.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return at;
}
template <class T>
T* output(const std::string& name, size_t count) {
  T* at = memory<T>(count);
  outputs.push_back({name, count * sizeof(T), reinterpret_cast<char*>(at)});
  return at;
}

using Launch = std::function<void(cudaStream_t)>;

cudaGraphExec_t capture(const std::vector<std::vector<Launch>>& branches) {
  cudaStream_t first;
  check(cudaStreamCreate(&first), "cudaStreamCreate");
  check(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal), "capture");
  cudaEvent_t begun;
  check(cudaEventCreate(&begun), "cudaEventCreate");
  check(cudaEventRecord(begun, first), "cudaEventRecord");
  for (const auto& branch : branches) {
    cudaStream_t stream = first;
    if (branches.size() > 1) {
      check(cudaStreamCreate(&stream), "cudaStreamCreate");
      check(cudaStreamWaitEvent(stream, begun, 0), "cudaStreamWaitEvent");
    }
    for (const Launch& launch : branch) launch(stream);
    check(cudaGetLastError(), "launch");
    if (branches.size() > 1) {
      cudaEvent_t ended;
      check(cudaEventCreate(&ended), "cudaEventCreate");
      check(cudaEventRecord(ended, stream), "cudaEventRecord");
      check(cudaStreamWaitEvent(first, ended, 0), "cudaStreamWaitEvent");
    }
  }
  cudaGraph_t graph;
  check(cudaStreamEndCapture(first, &graph), "capture");
  cudaGraphExec_t made;
  check(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  return made;
}

float median_us(cudaGraphExec_t graph, int launches) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = -3; i < launches; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "a launch");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 0) times.push_back(1000 * ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[1];
  const int launches = std::atoi(argv[2]);
  constexpr int n = 1024;
  float* const x = input<float>("x", n * n);
  float* const rows = input<float>("short", n * 128);
  auto* const data = input<unsigned char>("data", 65536);
  int* const ids = input<int>("ids", n);
  float* const a = input<float>("a", 512 * 512);
  float* const b = input<float>("b", 512 * 512);

  int* const counts = output<int>("counts", 16);
  float* const largest = output<float>("largest", n);
  float* const total = output<float>("total", n);
  float* const turned = output<float>("turned", n * n);
  float* const smooth = output<float>("smooth", n * n);
  float* const scaled = output<float>("scaled", n * n);
  float* const sums = output<float>("sums", n);
  float* const peaks = output<float>("peaks", n);
  float* const blocks = output<float>("blocks", 128);
  float* const soft = output<float>("soft", n * n);
  float* const added = output<float>("added", n * 128);
  float* const c = output<float>("c", 512 * 512);
  auto* const q = output<__nv_fp8_e4m3>("q", n * n);
  float* const s = output<float>("s", n);
  float* const gathered = output<float>("rows", n * n);
  int* const best = output<int>("best", n);
  int* const above = output<int>("above", n);

  using Stream = cudaStream_t;
  const std::vector<std::vector<Launch>> branches = {
      {[=](Stream t) { of_row_sum::row_sum<<<n, 128, 0, t>>>(x, largest, total, n); }},
      {[=](Stream t) {
        of_transpose::transposeTile<<<dim3(32, 32), dim3(32, 8), 0, t>>>(turned, x, n, n);
      }},
      {[=](Stream t) { of_histogram::histogram<<<16, 256, 0, t>>>(data, counts, 65536); }},
      {[=](Stream t) {
         of_stencil::stencil2d<<<dim3(32, 256), dim3(32, 4), 0, t>>>(x, smooth, n, n);
       },
       [=](Stream t) {
         of_saxpy::saxpy<float, 128><<<8192, 128, 0, t>>>(n * n, 2.5f, x, smooth, scaled, 1);
       }},
      {[=](Stream t) { of_tiles::tiles<<<128, 128, 0, t>>>(x, sums, peaks, blocks, n, n); }},
      {[=](Stream t) { of_softmax::online_softmax<256, 3><<<342, 256, 0, t>>>(x, soft, n, n); }},
      {[=](Stream t) { of_scan::scan_inclusive<<<n, 128, 1024, t>>>(rows, added, 128); }},
      {[=](Stream t) {
        of_product::MatrixMulCUDA<16><<<dim3(32, 32), dim3(16, 16), 0, t>>>(c, a, b, 512, 512, 512);
      }},
      {[=](Stream t) { of_quantize::quant::perRow<__nv_fp8_e4m3><<<n, 64, 0, t>>>(x, q, s, n); }},
      {[=](Stream t) {
        of_gather::gather_rows<<<256, dim3(32, 4), 0, t>>>(x, ids, gathered, n, n, n);
      }},
      {[=](Stream t) { of_argmax::argmax_rows<<<256, 128, 0, t>>>(x, best, above, n, n, 1.25f); }}};
  std::vector<Launch> all;
  for (const auto& branch : branches) all.insert(all.end(), branch.begin(), branch.end());

  // What one launch gives, before the others add to the counts.
  for (const Launch& launch : all) launch(nullptr);
  check(cudaDeviceSynchronize(), "the kernels");
  for (const Tensor& t : outputs) {
    std::vector<char> bytes(t.bytes);
    check(cudaMemcpy(bytes.data(), t.at, t.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::FILE* file = std::fopen((folder + "/" + t.name).c_str(), "wb");
    if (!file || std::fwrite(bytes.data(), 1, t.bytes, file) != t.bytes) return 1;
    std::fclose(file);
  }
  std::printf("behind_each_other_us %.2f\n", median_us(capture({all}), launches));
  std::printf("side_by_side_us %.2f\n", median_us(capture(branches), launches));
  return 0;
}
