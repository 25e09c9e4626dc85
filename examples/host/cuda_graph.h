// A CUDA graph, by the driver, which is opened when a graph is made, so that the examples build
// where there is no CUDA. Applications that have its headers include these instead.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

/// What a stream of GPU 0 does between `begin` and `end`, to be done again; and 4 bytes of memory
/// there.
class CudaGraph {
 public:
  CudaGraph() {
    call<unsigned>("cuInit", 0);
    call<void**, int>("cuDevicePrimaryCtxRetain", &context_, 0);
    call<void*>("cuCtxSetCurrent", context_);
    call<void**, unsigned>("cuStreamCreate", &stream_, 1);
    call<uint64_t*, size_t>("cuMemAlloc_v2", &word_, sizeof(int32_t));
  }
  ~CudaGraph() {
    if (instance_) result<void*>("cuGraphExecDestroy", instance_);
    if (graph_) result<void*>("cuGraphDestroy", graph_);
    result<uint64_t>("cuMemFree_v2", word_);
    result<void*>("cuStreamDestroy_v2", stream_);
    result<int>("cuDevicePrimaryCtxRelease_v2", 0);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void* stream() const { return stream_; }
  const void* word() const { return reinterpret_cast<const void*>(word_); }

  void begin() { call<void*, int>("cuStreamBeginCapture_v2", stream_, 0); }
  void end() {
    call<void*, void**>("cuStreamEndCapture", stream_, &graph_);
    call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &instance_, graph_, 0);
  }
  /// Puts `word` into the memory, then does all of it, and waits.
  void launch(int32_t word) {
    call<uint64_t, const void*, size_t, void*>("cuMemcpyHtoDAsync_v2", word_, &word, sizeof word,
                                               stream_);
    call<void*, void*>("cuGraphLaunch", instance_, stream_);
    call<void*>("cuStreamSynchronize", stream_);
  }

 private:
  // A CUresult; -1: there is no such function.
  template <class... Parameters>
  static int result(const char* name, Parameters... arguments) {
    static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    void* const found = driver ? dlsym(driver, name) : nullptr;
    return found ? reinterpret_cast<int (*)(Parameters...)>(found)(arguments...) : -1;
  }
  template <class... Parameters>
  static void call(const char* name, Parameters... arguments) {
    if (const int error = result<Parameters...>(name, arguments...))
      throw std::runtime_error(std::string(name) + " gives " + std::to_string(error));
  }

  void *context_ = nullptr, *stream_ = nullptr, *graph_ = nullptr, *instance_ = nullptr;
  uint64_t word_ = 0;
};
