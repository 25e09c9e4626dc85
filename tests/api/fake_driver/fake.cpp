// A CUDA driver without a GPU: memory is the host's, streams do at once what they are told, and
// kernels do nothing but leave a record. For tests of what the host does around them.
#include "tests/api/fake_driver/fake.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/driver_api.h"

using namespace maco::runtime::cuda;

namespace {

constexpr int kDevices = 2, kInvalid = 1, kNoMemory = 2;

std::mutex guard;
std::vector<fake::Launched> log_;
std::set<void*> things;  // alive
std::set<void*> captured;
int contexts[kDevices] = {}, stopping = -1, encoded = 0;
char context_of[kDevices];
thread_local Context current = nullptr;

template <class T>
Result make(T* to, size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!memory) return kNoMemory;
  const std::lock_guard lock(guard);
  things.insert(memory);
  *to = reinterpret_cast<T>(memory);
  return kSuccess;
}
template <class T>
Result drop(T thing) {
  void* const memory = reinterpret_cast<void*>(thing);
  const std::lock_guard lock(guard);
  if (things.erase(memory) == 0) return kInvalid;
  std::free(memory);
  return kSuccess;
}
int device_now() { return static_cast<int>(reinterpret_cast<char*>(current) - context_of); }
// The module's two functions.
char kernel, reset;

Result run(Function f, Stream stream, void** arguments) {
  const auto& launch = *static_cast<const maco::Launch*>(arguments[0]);
  const std::lock_guard lock(guard);
  if (reinterpret_cast<char*>(f) == &reset) return kSuccess;
  log_.push_back({device_now(), launch.rank, stream, launch.epoch, launch.tensors});
  if (stopping != launch.rank) return kSuccess;
  stopping = -1;
  maco::Report& report = launch.reports[0];
  report.kind = maco::kBadIndex;
  report.epoch = launch.epoch;
  report.index = 9;
  report.limit = 4;
  report.state = 2;
  return kSuccess;
}

}  // namespace

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE extern const fake::Controls fake_controls;
const fake::Controls fake_controls = {
    [] { return static_cast<int>(log_.size()); },
    [](int i) { return log_[static_cast<size_t>(i)]; },
    [](int rank) { stopping = rank; },
    [](void* stream, bool on) {
      if (on)
        captured.insert(stream);
      else
        captured.erase(stream);
    },
    [] { return encoded; },
    [] { return static_cast<int>(things.size()) + contexts[0] + contexts[1]; }};

FAKE Result cuInit(unsigned) { return kSuccess; }
FAKE Result cuDriverGetVersion(int* v) { return *v = 13000, kSuccess; }
FAKE Result cuGetErrorName(Result, const char** s) { return *s = "FAKE_ERROR", kSuccess; }
FAKE Result cuGetErrorString(Result, const char** s) { return *s = "of the fake", kSuccess; }
FAKE Result cuDeviceGetCount(int* n) { return *n = kDevices, kSuccess; }
FAKE Result cuDeviceGet(Device* d, int i) { return *d = i, kSuccess; }
FAKE Result cuDeviceGetName(char* to, int n, Device) {
  std::strncpy(to, "Fake H200", static_cast<size_t>(n));
  return kSuccess;
}
FAKE Result cuDeviceGetAttribute(int* v, int attribute, Device) {
  *v = attribute == kMultiprocessors       ? 132
       : attribute == kComputeMajor        ? 9
       : attribute == kComputeMinor        ? 0
       : attribute == kSharedPerBlockOptin ? 232448
                                           : 1;
  return kSuccess;
}
FAKE Result cuDeviceCanAccessPeer(int* can, Device, Device) { return *can = 1, kSuccess; }
FAKE Result cuDevicePrimaryCtxRetain(Context* c, Device d) {
  const std::lock_guard lock(guard);
  ++contexts[d];
  *c = reinterpret_cast<Context>(&context_of[d]);
  return kSuccess;
}
FAKE Result cuDevicePrimaryCtxRelease_v2(Device d) {
  const std::lock_guard lock(guard);
  return --contexts[d], kSuccess;
}
FAKE Result cuCtxSetCurrent(Context c) { return current = c, kSuccess; }
FAKE Result cuCtxGetCurrent(Context* c) { return *c = current, kSuccess; }
FAKE Result cuCtxEnablePeerAccess(Context, unsigned) { return kSuccess; }
FAKE Result cuModuleLoadData(Module* m, const void*) { return make(m, 1); }
FAKE Result cuModuleUnload(Module m) { return drop(m); }
FAKE Result cuModuleGetFunction(Function* f, Module, const char* name) {
  *f = reinterpret_cast<Function>(std::strcmp(name, "maco_kernel") == 0 ? &kernel : &reset);
  return kSuccess;
}
FAKE Result cuFuncSetAttribute(Function, int, int) { return kSuccess; }
FAKE Result cuFuncGetAttribute(int* v, int attribute, Function) {
  return *v = attribute == kFunctionMaxThreads ? 1024 : 0, kSuccess;
}
FAKE Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Function, int, size_t) {
  return *n = 1, kSuccess;
}
FAKE Result cuLaunchKernel(Function f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, Stream s, void** arguments, void**) {
  return run(f, s, arguments);
}
FAKE Result cuLaunchCooperativeKernel(Function f, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, Stream s, void** arguments) {
  return run(f, s, arguments);
}
FAKE Result cuMemAlloc_v2(DevicePtr* p, size_t bytes) { return make(p, bytes); }
FAKE Result cuMemFree_v2(DevicePtr p) { return drop(p); }
FAKE Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  return *free = *total = size_t{1} << 37, kSuccess;
}
FAKE Result cuMemHostAlloc(void** p, size_t bytes, unsigned) { return make(p, bytes); }
FAKE Result cuMemFreeHost(void* p) { return drop(p); }
FAKE Result cuMemHostGetDevicePointer_v2(DevicePtr* d, void* p, unsigned) {
  return *d = reinterpret_cast<DevicePtr>(p), kSuccess;
}
FAKE Result cuMemsetD8Async(DevicePtr p, unsigned char byte, size_t n, Stream) {
  return std::memset(reinterpret_cast<void*>(p), byte, n), kSuccess;
}
FAKE Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t n, Stream) {
  return std::memcpy(reinterpret_cast<void*>(to), from, n), kSuccess;
}
FAKE Result cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t n, Stream) {
  return std::memcpy(to, reinterpret_cast<void*>(from), n), kSuccess;
}
FAKE Result cuTensorMapEncodeTiled(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                                   const uint32_t*, const uint32_t*, int, int, int, int) {
  const std::lock_guard lock(guard);
  return ++encoded, kSuccess;
}
FAKE Result cuStreamCreate(Stream* s, unsigned) { return make(s, 1); }
FAKE Result cuStreamDestroy_v2(Stream s) { return drop(s); }
FAKE Result cuStreamQuery(Stream) { return kSuccess; }
FAKE Result cuStreamSynchronize(Stream) { return kSuccess; }
FAKE Result cuStreamWaitValue32_v2(Stream, DevicePtr, uint32_t, unsigned) { return kSuccess; }
FAKE Result cuStreamIsCapturing(Stream s, int* on) {
  const std::lock_guard lock(guard);
  return *on = static_cast<int>(captured.count(s)), kSuccess;
}
FAKE Result cuStreamWaitEvent(Stream, Event, unsigned) { return kSuccess; }
FAKE Result cuEventCreate(Event* e, unsigned) { return make(e, 1); }
FAKE Result cuEventDestroy_v2(Event e) { return drop(e); }
FAKE Result cuEventQuery(Event) { return kSuccess; }
FAKE Result cuEventRecord(Event, Stream) { return kSuccess; }
FAKE Result cuEventElapsedTime(float* ms, Event, Event) { return *ms = 1, kSuccess; }

}  // extern "C"
