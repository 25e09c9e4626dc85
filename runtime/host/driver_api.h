// The part of the CUDA driver's public interface that the runtime uses, declared here so that no
// CUDA header is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maco::runtime::cuda {

using Result = int;
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using MemoryHandle = unsigned long long;

/// CUlaunchAttribute: whether a launch is cooperative, and whether it may begin before the one in
/// front of it in its stream has ended.
struct LaunchAttribute {
  int id = 0, unused = 0;
  union {
    int value = 0;
    char words[64];
  };
};
inline constexpr int kLaunchCooperative = 2, kLaunchProgrammatic = 6;
/// CUlaunchConfig
struct LaunchShape {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
  Stream stream = nullptr;
  const LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

/// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc, of memory of a device that can be given
/// to other processes as a file.
struct MemoryPlace {
  int type = 1;
  Device device = 0;
};
struct MemoryKind {
  int pinned = 1, handles = 1;
  MemoryPlace place;
  void* unused = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryPlace place;
  int read_and_write = 3;
};
inline constexpr int kHandleIsFile = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
using Uuid = char[16];

inline constexpr Result kSuccess = 0;
inline constexpr Result kNotReady = 600;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;

// CUdevice_attribute
inline constexpr int kMultiprocessors = 16;
inline constexpr int kComputeMajor = 75;
inline constexpr int kComputeMinor = 76;
inline constexpr int kCooperativeLaunch = 95;
inline constexpr int kSharedPerBlockOptin = 97;
inline constexpr int kHandlesAreFiles = 103;
// CUfunction_attribute
inline constexpr int kFunctionMaxThreads = 0;
inline constexpr int kFunctionStaticShared = 1;
inline constexpr int kFunctionLocalBytes = 3;
inline constexpr int kFunctionRegisters = 4;
inline constexpr int kFunctionPtxVersion = 5;
inline constexpr int kFunctionMaxDynamicShared = 8;
inline constexpr int kFunctionClusterWidth = 11;

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
inline constexpr int kMapU8 = 0;
inline constexpr int kMapU32 = 2;
inline constexpr int kMapU64 = 4;
inline constexpr int kMapF16 = 6;
inline constexpr int kMapBf16 = 9;
inline constexpr int kMapSwizzleNone = 0;
inline constexpr int kMapSwizzle128 = 3;
inline constexpr int kMapL2Promotion256 = 3;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1, kEventNoTiming = 2;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostMapped = 2;
inline constexpr unsigned kWaitGeq = 0, kWaitEq = 1;
inline constexpr int kCaptureRelaxed = 2;  // CUstreamCaptureMode

// X(name of the member, symbol, parameter types): all return Result.
#define MACO_CUDA_FUNCTIONS(X)                                                                \
  X(init, "cuInit", (unsigned))                                                               \
  X(driver_version, "cuDriverGetVersion", (int*))                                             \
  X(error_name, "cuGetErrorName", (Result, const char**))                                     \
  X(error_string, "cuGetErrorString", (Result, const char**))                                 \
  X(device_count, "cuDeviceGetCount", (int*))                                                 \
  X(device_get, "cuDeviceGet", (Device*, int))                                                \
  X(device_name, "cuDeviceGetName", (char*, int, Device))                                     \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, Device))                            \
  X(can_access_peer, "cuDeviceCanAccessPeer", (int*, Device, Device))                         \
  X(device_uuid, "cuDeviceGetUuid_v2", (Uuid*, Device))                                       \
  X(context_retain, "cuDevicePrimaryCtxRetain", (Context*, Device))                           \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (Device))                                \
  X(context_set, "cuCtxSetCurrent", (Context))                                                \
  X(context_get, "cuCtxGetCurrent", (Context*))                                               \
  X(context_synchronize, "cuCtxSynchronize", ())                                              \
  X(enable_peer, "cuCtxEnablePeerAccess", (Context, unsigned))                                \
  X(module_load, "cuModuleLoadData", (Module*, const void*))                                  \
  X(module_unload, "cuModuleUnload", (Module))                                                \
  X(module_function, "cuModuleGetFunction", (Function*, Module, const char*))                 \
  X(function_set, "cuFuncSetAttribute", (Function, int, int))                                 \
  X(function_get, "cuFuncGetAttribute", (int*, int, Function))                                \
  X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor", (int*, Function, int, size_t))  \
  X(clusters, "cuOccupancyMaxActiveClusters", (int*, Function, const LaunchShape*))           \
  X(launch, "cuLaunchKernel",                                                                 \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,  \
     void**, void**))                                                                         \
  X(launch_shape, "cuLaunchKernelEx", (const LaunchShape*, Function, void**, void**))         \
  X(launch_cooperative, "cuLaunchCooperativeKernel",                                          \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,  \
     void**))                                                                                 \
  X(allocate, "cuMemAlloc_v2", (DevicePtr*, size_t))                                          \
  X(free, "cuMemFree_v2", (DevicePtr))                                                        \
  X(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                       \
  X(memory_granularity, "cuMemGetAllocationGranularity", (size_t*, const MemoryKind*, int))   \
  X(memory_create, "cuMemCreate", (MemoryHandle*, size_t, const MemoryKind*, uint64_t))       \
  X(memory_release, "cuMemRelease", (MemoryHandle))                                           \
  X(memory_export, "cuMemExportToShareableHandle", (void*, MemoryHandle, int, uint64_t))      \
  X(memory_import, "cuMemImportFromShareableHandle", (MemoryHandle*, void*, int))             \
  X(memory_reserve, "cuMemAddressReserve", (DevicePtr*, size_t, size_t, DevicePtr, uint64_t)) \
  X(memory_unreserve, "cuMemAddressFree", (DevicePtr, size_t))                                \
  X(memory_map, "cuMemMap", (DevicePtr, size_t, size_t, MemoryHandle, uint64_t))              \
  X(memory_unmap, "cuMemUnmap", (DevicePtr, size_t))                                          \
  X(memory_access, "cuMemSetAccess", (DevicePtr, size_t, const MemoryAccess*, size_t))        \
  X(host_allocate, "cuMemHostAlloc", (void**, size_t, unsigned))                              \
  X(host_free, "cuMemFreeHost", (void*))                                                      \
  X(host_pointer, "cuMemHostGetDevicePointer_v2", (DevicePtr*, void*, unsigned))              \
  X(fill, "cuMemsetD8Async", (DevicePtr, unsigned char, size_t, Stream))                      \
  X(to_device, "cuMemcpyHtoDAsync_v2", (DevicePtr, const void*, size_t, Stream))              \
  X(to_host, "cuMemcpyDtoHAsync_v2", (void*, DevicePtr, size_t, Stream))                      \
  X(map_encode, "cuTensorMapEncodeTiled",                                                     \
    (void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,          \
     const uint32_t*, int, int, int, int))                                                    \
  X(stream_create, "cuStreamCreate", (Stream*, unsigned))                                     \
  X(stream_destroy, "cuStreamDestroy_v2", (Stream))                                           \
  X(stream_query, "cuStreamQuery", (Stream))                                                  \
  X(stream_synchronize, "cuStreamSynchronize", (Stream))                                      \
  X(stream_wait_value, "cuStreamWaitValue32_v2", (Stream, DevicePtr, uint32_t, unsigned))     \
  X(stream_write_value, "cuStreamWriteValue32_v2", (Stream, DevicePtr, uint32_t, unsigned))   \
  X(stream_id, "cuStreamGetId", (Stream, uint64_t*))                                          \
  X(stream_capturing, "cuStreamIsCapturing", (Stream, int*))                                  \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                       \
  X(stream_wait_event, "cuStreamWaitEvent", (Stream, Event, unsigned))                        \
  X(event_create, "cuEventCreate", (Event*, unsigned))                                        \
  X(event_query, "cuEventQuery", (Event))                                                     \
  X(event_synchronize, "cuEventSynchronize", (Event))                                         \
  X(event_destroy, "cuEventDestroy_v2", (Event))                                              \
  X(event_record, "cuEventRecord", (Event, Stream))                                           \
  X(event_elapsed, "cuEventElapsedTime", (float*, Event, Event))

}  // namespace maco::runtime::cuda
