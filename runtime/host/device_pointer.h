// Addresses in device memory, as the driver has them and as kernels' structures do.
#pragma once

#include <cstdint>

#include "runtime/host/driver_api.h"

namespace maco::runtime {

/// An address in device memory as a pointer, which the host never follows, and back.
template <class T>
T* pointer(cuda::DevicePtr address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}
inline cuda::DevicePtr device(const void* address) {
  return static_cast<cuda::DevicePtr>(reinterpret_cast<uintptr_t>(address));
}

}  // namespace maco::runtime
