// The part of NCCL's public interface that the runtime uses, bound at run time.
#pragma once

#include <climits>
#include <cstddef>

#include "runtime/host/library.h"
#include "runtime/host/nccl.h"

namespace maco::runtime {

/// ncclConfig_t as in 2.18, which later versions accept.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 1, cluster = 0, min_ctas = 1, max_ctas = 1;
  const char* net = nullptr;
  int split_share = INT_MIN;
};

/// All functions except those that return strings return an ncclResult_t.
struct Nccl::Api {
  Library library;
  int (*version)(int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*unique_id)(Id*) = nullptr;
  int (*init)(void**, int ranks, Id, int rank, void* config) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*abort)(void*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, cuda::Stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, void*, cuda::Stream) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, void*, cuda::Stream) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int, int root, void*, cuda::Stream) = nullptr;
  int (*send)(const void*, size_t, int, int peer, void*, cuda::Stream) = nullptr;
  int (*receive)(void*, size_t, int, int peer, void*, cuda::Stream) = nullptr;
  // Memory that all ranks reach: null before 2.27 (windows) and before 2.29 (peer_pointer).
  int (*memory_allocate)(void**, size_t) = nullptr;
  int (*memory_free)(void*) = nullptr;
  int (*window_register)(void*, void*, size_t, void**, int flags) = nullptr;
  int (*window_deregister)(void*, void*) = nullptr;
  int (*peer_pointer)(void*, size_t, int peer, void**) = nullptr;
  int version_code = 0;  // 22809: 2.28.9

  /// Returns false if the library lacks a function of 2.18.
  bool bind_all() {
    library.bind(memory_allocate, "ncclMemAlloc");
    library.bind(memory_free, "ncclMemFree");
    library.bind(window_register, "ncclCommWindowRegister");
    library.bind(window_deregister, "ncclCommWindowDeregister");
    library.bind(peer_pointer, "ncclGetPeerDevicePointer");
    return library.bind(version, "ncclGetVersion") &&
           library.bind(error_string, "ncclGetErrorString") &&
           library.bind(unique_id, "ncclGetUniqueId") &&
           library.bind(init, "ncclCommInitRankConfig") &&
           library.bind(destroy, "ncclCommDestroy") && library.bind(abort, "ncclCommAbort") &&
           library.bind(group_start, "ncclGroupStart") && library.bind(group_end, "ncclGroupEnd") &&
           library.bind(all_reduce, "ncclAllReduce") &&
           library.bind(reduce_scatter, "ncclReduceScatter") &&
           library.bind(all_gather, "ncclAllGather") && library.bind(broadcast, "ncclBroadcast") &&
           library.bind(send, "ncclSend") && library.bind(receive, "ncclRecv");
  }
};

}  // namespace maco::runtime
