// A CUDA driver without a GPU: memory is the host's, streams do everything at once, and kernels
// only leave a record. For tests of the host's work around them.
#include "tests/api/fake_driver/fake.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/driver_api.h"

using namespace maco::runtime::cuda;

namespace {

constexpr int kDevices = 2, kInvalid = 1, kNoMemory = 2, kCaptureUnsupported = 900;

// A kernel with its arguments.
struct Node {
  Function function;
  int device;
  bool early;
  unsigned ctas;
  maco::Launch launch;
};
// The value that a test has set in the environment, or `otherwise`.
int set_to(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

std::mutex guard;
std::vector<fake::Launched> log_;
std::set<void*> things;  // alive
std::set<void*> capturing;
std::map<void*, std::vector<Node>> graphs;           // by the stream that they were captured on
std::map<int, std::span<maco::LaunchState>> states;  // by rank, one a CTA
std::map<maco::LaunchState*, int64_t> variable;      // that the last launch found
// The Control of the launch that runs until it is told to stop.
maco::Control* held = nullptr;
int contexts[kDevices] = {}, stopping = -1, holding = -1, failing = -1, encoded = 0, resets = 0;
int failing_copy = 0;  // that many copies to a device from now on, the last one fails
char context_of[kDevices];
thread_local Context current = nullptr;
thread_local int capture_mode = 0;  // global, as CUDA's threads begin

// Operations that may disturb a capture are forbidden, unless the thread allows them.
Result allowed() {
  const std::lock_guard lock(guard);
  return capturing.empty() || capture_mode == kCaptureRelaxed ? kSuccess : kCaptureUnsupported;
}

// Whether all launches have ended.
Result ended() {
  const std::lock_guard lock(guard);
  if (held && std::atomic_ref<maco::u32>(held->abort).load() == 0) return kNotReady;
  held = nullptr;
  return kSuccess;
}

template <class T>
Result make(T* to, size_t bytes) {
  if (const Result r = allowed(); r != kSuccess) return r;
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
  // A launch that stops needs the memory to which it writes.
  std::erase_if(states, [&](const auto& of_rank) { return of_rank.second.data() == memory; });
  variable.erase(static_cast<maco::LaunchState*>(memory));
  std::free(memory);
  return kSuccess;
}
// Copies that have not begun, if FAKE_LATE_COPIES is set: they begin when something behind them is
// awaited.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
std::map<void*, std::vector<Copy>> late;             // by stream
std::map<void*, std::pair<void*, size_t>> recorded;  // events: stream, and how many are before it
// Does the first `count` copies of a stream.
void copy_now(void* stream, size_t count) {
  std::vector<Copy>& all = late[stream];
  for (size_t i = 0; i < std::min(count, all.size()); ++i) {
    std::memcpy(all[i].to, all[i].from, all[i].bytes);
    all[i].bytes = 0;  // once
  }
}

int device_now() { return static_cast<int>(reinterpret_cast<char*>(current) - context_of); }
// The module's functions.
char kernel, reset;

void report(const maco::Launch& launch, maco::ReportKind kind, int64_t index, int64_t limit) {
  maco::Report& r = launch.reports[0];
  r.kind = kind;
  r.epoch = launch.epoch;
  r.index = index;
  r.limit = limit;
  r.state = 2;
}

// The first variable must be 0 to 4. Returns false if the launch does nothing.
bool numbers_itself(const maco::Launch& launch, unsigned ctas) {
  const std::span all(launch.state, ctas);
  maco::LaunchState& state = all[0];
  states[launch.rank] = all;
  const auto same = [&](const maco::LaunchState& other) {
    return other.epoch == state.epoch && other.left == state.left && other.refused == state.refused;
  };
  if (state.refused || !std::all_of(all.begin(), all.end(), same)) return false;
  const uint64_t first = launch.variables.given[0];
  variable[&state] = (launch.variables.placed[0] & 1) != 0
                         ? *reinterpret_cast<const int32_t*>(first)
                         : static_cast<int64_t>(first);
  const bool bad = variable[&state] < 0 || variable[&state] > 4;
  if (state.left == 0 || bad) {
    for (auto& each : all) each.refused = 1;
    report(launch, bad ? maco::kBadVariable : maco::kSpent, variable[&state], 0);
    return false;
  }
  for (auto& each : all) {
    ++each.epoch;
    --each.left;
  }
  return true;
}

void run(const Node& n, Stream stream) {
  char* const f = reinterpret_cast<char*>(n.function);
  if (f == &reset) {
    n.launch.control->abort = 0;
    return static_cast<void>(++resets);
  }
  const maco::LaunchState* state = n.launch.state;
  if (state && !numbers_itself(n.launch, n.ctas)) return;
  log_.push_back({n.device, n.launch.rank, stream, state ? state->epoch : n.launch.epoch,
                  n.launch.tensors, state != nullptr, n.early, state ? variable[n.launch.state] : 0,
                  n.launch.symmetric});
  if (holding == n.launch.rank) {
    holding = -1;
    held = n.launch.control;
  }
  if (stopping != n.launch.rank) return;
  stopping = -1;
  report(n.launch, maco::kBadIndex, 9, 4);
  for (const auto& [rank, all] : states)
    for (auto& each : all) each.refused = 1;
}

Result launch(Function f, unsigned ctas, Stream stream, void** arguments, bool early = false) {
  const std::lock_guard lock(guard);
  const Node n{f, device_now(), early, ctas, *static_cast<const maco::Launch*>(arguments[0])};
  if (reinterpret_cast<char*>(f) == &kernel && failing == n.launch.rank) {
    failing = -1;
    return kNoMemory;
  }
  if (capturing.count(stream) > 0)
    graphs[stream].push_back(n);
  else
    run(n, stream);
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
    [](int rank) { failing = rank; },
    [](int rank) { holding = rank; },
    [](int copies) { failing_copy = copies; },
    [](void* stream, bool on) {
      if (on) {
        capturing.insert(stream);
        graphs[stream].clear();
      } else {
        capturing.erase(stream);
      }
    },
    [](void* stream) {
      for (const Node& n : graphs[stream]) run(n, static_cast<Stream>(stream));
    },
    [](int rank, uint32_t left) {
      for (auto& each : states[rank]) each.left = left;
    },
    [] { return resets; },
    [] { return encoded; },
    [] { return static_cast<int>(things.size()) + contexts[0] + contexts[1]; }};

FAKE Result cuInit(unsigned) { return kSuccess; }
FAKE Result cuDriverGetVersion(int* v) { return *v = set_to("FAKE_VERSION", 13000), kSuccess; }
FAKE Result cuGetErrorName(Result, const char** s) { return *s = "FAKE_ERROR", kSuccess; }
FAKE Result cuGetErrorString(Result, const char** s) { return *s = "of the fake", kSuccess; }
FAKE Result cuDeviceGetCount(int* n) { return *n = set_to("FAKE_DEVICES", kDevices), kSuccess; }
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
// All processes see the same GPUs.
FAKE Result cuDeviceGetUuid_v2(Uuid* uuid, Device d) {
  std::memset(uuid, d + 1, sizeof *uuid);
  return kSuccess;
}
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
// As in CUDA, this is never allowed during a capture, whatever a thread says.
FAKE Result cuCtxSynchronize() {
  const std::lock_guard lock(guard);
  return capturing.empty() ? kSuccess : kCaptureUnsupported;
}
FAKE Result cuThreadExchangeStreamCaptureMode(int* mode) {
  return std::swap(*mode, capture_mode), kSuccess;
}
FAKE Result cuCtxEnablePeerAccess(Context, unsigned) { return kSuccess; }
FAKE Result cuModuleLoadData(Module* m, const void*) { return make(m, 1); }
FAKE Result cuModuleUnload(Module m) { return drop(m); }
FAKE Result cuModuleGetFunction(Function* f, Module, const char* name) {
  *f = reinterpret_cast<Function>(std::strcmp(name, "maco_kernel") == 0 ? &kernel : &reset);
  return kSuccess;
}
FAKE Result cuFuncSetAttribute(Function, int, int) { return kSuccess; }
FAKE Result cuFuncGetAttribute(int* v, int attribute, Function) {
  return *v = attribute == kFunctionMaxThreads     ? 1024
              : attribute == kFunctionPtxVersion   ? set_to("FAKE_CODE", 90)
              : attribute == kFunctionClusterWidth ? set_to("FAKE_CLUSTER", 0)
                                                   : 0,
         kSuccess;
}
FAKE Result cuOccupancyMaxActiveClusters(int* n, Function, const LaunchShape*) {
  return *n = set_to("FAKE_CLUSTERS", 66), kSuccess;
}
FAKE Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Function, int, size_t) {
  return *n = 1, kSuccess;
}
FAKE Result cuLaunchKernel(Function f, unsigned ctas, unsigned, unsigned, unsigned, unsigned,
                           unsigned, unsigned, Stream s, void** arguments, void**) {
  return launch(f, ctas, s, arguments);
}
FAKE Result cuLaunchKernelEx(const LaunchShape* shape, Function f, void** arguments, void**) {
  bool early = false;
  for (unsigned i = 0; i < shape->attribute_count; ++i)
    early |= shape->attributes[i].id == kLaunchProgrammatic && shape->attributes[i].value != 0;
  return launch(f, shape->grid[0], shape->stream, arguments, early);
}
FAKE Result cuLaunchCooperativeKernel(Function f, unsigned ctas, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, unsigned, Stream s, void** arguments) {
  return launch(f, ctas, s, arguments);
}
FAKE Result cuMemAlloc_v2(DevicePtr* p, size_t bytes) { return make(p, bytes); }
FAKE Result cuMemFree_v2(DevicePtr p) { return drop(p); }
FAKE Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  const char* const left = std::getenv("FAKE_FREE");
  *total = size_t{1} << 37;
  return *free = left ? static_cast<size_t>(std::atoll(left)) : *total, kSuccess;
}
// A handle is a file in memory, and so is what stands for it in other processes.
FAKE Result cuMemGetAllocationGranularity(size_t* unit, const MemoryKind*, int) {
  return *unit = 1 << 16, kSuccess;
}
FAKE Result cuMemCreate(MemoryHandle* h, size_t bytes, const MemoryKind*, uint64_t) {
  const int file = ::memfd_create("fake", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return kNoMemory;
  return *h = static_cast<MemoryHandle>(file), kSuccess;
}
FAKE Result cuMemRelease(MemoryHandle h) {
  return ::close(static_cast<int>(h)) == 0 ? kSuccess : kInvalid;
}
FAKE Result cuMemExportToShareableHandle(void* to, MemoryHandle h, int, uint64_t) {
  const int file = ::dup(static_cast<int>(h));
  std::memcpy(to, &file, sizeof file);
  return file < 0 ? kInvalid : kSuccess;
}
FAKE Result cuMemImportFromShareableHandle(MemoryHandle* h, void* file, int) {
  const int copy = ::dup(static_cast<int>(reinterpret_cast<intptr_t>(file)));
  return *h = static_cast<MemoryHandle>(copy), copy < 0 ? kInvalid : kSuccess;
}
FAKE Result cuMemAddressReserve(DevicePtr* p, size_t bytes, size_t, DevicePtr, uint64_t) {
  void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return kNoMemory;
  const std::lock_guard lock(guard);
  things.insert(at);
  return *p = reinterpret_cast<DevicePtr>(at), kSuccess;
}
FAKE Result cuMemAddressFree(DevicePtr p, size_t bytes) {
  const std::lock_guard lock(guard);
  if (things.erase(reinterpret_cast<void*>(p)) == 0) return kInvalid;
  return ::munmap(reinterpret_cast<void*>(p), bytes) == 0 ? kSuccess : kInvalid;
}
FAKE Result cuMemMap(DevicePtr p, size_t bytes, size_t, MemoryHandle h, uint64_t) {
  void* const at = reinterpret_cast<void*>(p);
  return ::mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, static_cast<int>(h), 0) == at
             ? kSuccess
             : kInvalid;
}
FAKE Result cuMemUnmap(DevicePtr p, size_t bytes) {
  void* const at = reinterpret_cast<void*>(p);
  return ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at
             ? kSuccess
             : kInvalid;
}
FAKE Result cuMemSetAccess(DevicePtr p, size_t bytes, const MemoryAccess*, size_t) {
  return ::mprotect(reinterpret_cast<void*>(p), bytes, PROT_READ | PROT_WRITE) == 0 ? kSuccess
                                                                                    : kInvalid;
}
FAKE Result cuMemHostAlloc(void** p, size_t bytes, unsigned) { return make(p, bytes); }
FAKE Result cuMemFreeHost(void* p) { return drop(p); }
FAKE Result cuMemHostGetDevicePointer_v2(DevicePtr* d, void* p, unsigned) {
  return *d = reinterpret_cast<DevicePtr>(p), kSuccess;
}
FAKE Result cuMemsetD8Async(DevicePtr p, unsigned char byte, size_t n, Stream) {
  return std::memset(reinterpret_cast<void*>(p), byte, n), kSuccess;
}
FAKE Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t n, Stream s) {
  const std::lock_guard lock(guard);
  if (failing_copy > 0 && --failing_copy == 0) return kInvalid;
  void* const at = reinterpret_cast<void*>(to);
  if (set_to("FAKE_LATE_COPIES", 0) == 0) return std::memcpy(at, from, n), kSuccess;
  late[s].push_back({at, from, n});
  return kSuccess;
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
FAKE Result cuStreamQuery(Stream) { return allowed() == kSuccess ? ended() : kSuccess; }
FAKE Result cuStreamSynchronize(Stream s) {
  {
    const std::lock_guard lock(guard);
    if (capturing.count(s) > 0) return kCaptureUnsupported;
    copy_now(s, SIZE_MAX);
    late.erase(s);
  }
  return allowed();
}
FAKE Result cuStreamWaitValue32_v2(Stream, DevicePtr, uint32_t, unsigned) { return kSuccess; }
FAKE Result cuStreamWriteValue32_v2(Stream, DevicePtr at, uint32_t value, unsigned) {
  return *reinterpret_cast<uint32_t*>(at) = value, kSuccess;
}
FAKE Result cuStreamGetId(Stream s, uint64_t* id) {
  return *id = reinterpret_cast<uint64_t>(s), kSuccess;
}
FAKE Result cuStreamIsCapturing(Stream s, int* on) {
  const std::lock_guard lock(guard);
  return *on = static_cast<int>(capturing.count(s)), kSuccess;
}
FAKE Result cuStreamWaitEvent(Stream, Event, unsigned) { return kSuccess; }
FAKE Result cuEventCreate(Event* e, unsigned) { return make(e, 1); }
FAKE Result cuEventDestroy_v2(Event e) { return drop(e); }
FAKE Result cuEventQuery(Event) { return allowed() == kSuccess ? ended() : allowed(); }
FAKE Result cuEventSynchronize(Event e) {
  {
    const std::lock_guard lock(guard);
    if (const auto at = recorded.find(e); at != recorded.end())
      copy_now(at->second.first, at->second.second);
  }
  return allowed();
}
FAKE Result cuEventRecord(Event e, Stream s) {
  const std::lock_guard lock(guard);
  if (late.count(s) > 0) recorded[e] = {s, late[s].size()};
  return kSuccess;
}
FAKE Result cuEventElapsedTime(float* ms, Event, Event) { return *ms = 1, kSuccess; }

}  // extern "C"
