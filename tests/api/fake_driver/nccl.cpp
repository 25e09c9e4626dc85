// An NCCL that moves nothing and leaves a record. For tests of what the host hands over to it.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/api/fake_driver/fake.h"

namespace {

struct Comm {
  int rank, world, sms;
};
std::mutex guard;
std::vector<fake::NcclCall> log_;
int communicators = 0, windows = 0;
std::map<int, void*> registered;  // windows, by rank

int record(void* comm, std::string what, size_t count, int type, int more) {
  const std::lock_guard lock(guard);
  log_.push_back({static_cast<Comm*>(comm)->rank, std::move(what), count, type, more,
                  static_cast<Comm*>(comm)->sms});
  return 0;
}

}  // namespace

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE extern const fake::NcclControls fake_nccl_controls;
const fake::NcclControls fake_nccl_controls = {[](std::vector<fake::NcclCall>& calls) {
                                                 const std::lock_guard lock(guard);
                                                 calls.swap(log_);
                                                 log_.clear();
                                               },
                                               [] { return communicators + windows; }};

FAKE int ncclGetVersion(int* v) { return *v = 22903, 0; }
FAKE const char* ncclGetErrorString(int) { return "of the fake"; }
FAKE int ncclGetUniqueId(std::array<char, 128>* id) { return id->fill('i'), 0; }
FAKE int ncclCommInitRankConfig(void** comm, int world, std::array<char, 128> id, int rank,
                                void* config) {
  // The fields of ncclConfig_t, up to maxCTAs.
  struct {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, min_ctas, max_ctas;
  } head;
  std::memcpy(&head, config, sizeof head);
  if (id[127] != 'i' || head.magic != 0xcafebeef || head.blocking != 1) return 4;
  const std::lock_guard lock(guard);
  ++communicators;
  *comm = new Comm{rank, world, head.max_ctas};
  return 0;
}
FAKE int ncclMemAlloc(void** memory, size_t bytes) {
  const std::lock_guard lock(guard);
  ++windows;
  return *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), *memory ? 0 : 1;
}
FAKE int ncclMemFree(void* memory) {
  const std::lock_guard lock(guard);
  return --windows, std::free(memory), 0;
}
// A window is its rank's comm; all of one group at a time.
FAKE int ncclCommWindowRegister(void* comm, void* memory, size_t, void** window, int flags) {
  const std::lock_guard lock(guard);
  if (flags != 1) return 4;
  registered[static_cast<Comm*>(comm)->rank] = memory;
  return *window = comm, 0;
}
FAKE int ncclCommWindowDeregister(void* comm, void* window) { return comm == window ? 0 : 4; }
FAKE int ncclGetPeerDevicePointer(void*, size_t offset, int peer, void** to) {
  const std::lock_guard lock(guard);
  return *to = static_cast<char*>(registered[peer]) + offset, 0;
}
FAKE int ncclCommDestroy(void* comm) {
  const std::lock_guard lock(guard);
  --communicators;
  delete static_cast<Comm*>(comm);
  return 0;
}
FAKE int ncclCommAbort(void* comm) { return ncclCommDestroy(comm); }
FAKE int ncclGroupStart() { return 0; }
FAKE int ncclGroupEnd() { return 0; }
FAKE int ncclAllReduce(const void*, void*, size_t n, int type, int op, void* comm, void*) {
  return record(comm, "allreduce", n, type, op);
}
FAKE int ncclReduceScatter(const void*, void*, size_t n, int type, int op, void* comm, void*) {
  return record(comm, "reduce_scatter", n, type, op);
}
FAKE int ncclAllGather(const void*, void*, size_t n, int type, void* comm, void*) {
  return record(comm, "allgather", n, type, 0);
}
FAKE int ncclBroadcast(const void*, void*, size_t n, int type, int root, void* comm, void*) {
  return record(comm, "broadcast", n, type, root);
}
FAKE int ncclSend(const void*, size_t n, int type, int peer, void* comm, void*) {
  return record(comm, "send", n, type, peer);
}
FAKE int ncclRecv(void*, size_t n, int type, int peer, void* comm, void*) {
  return record(comm, "recv", n, type, peer);
}
}
