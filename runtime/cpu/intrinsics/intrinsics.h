// What the machine provides, on a host: runtime/device/intrinsics provides the same for a GPU in
// headers of the same names, and documents each function. Included before each kernel.cu. A context
// is a warp role of one thread. The executor is told where contexts wait and signal.

#define MACO_CPU 1

#include "cpu_context.h"

#ifndef MACO_CPU_ENTER
#define MACO_CPU_ENTER
namespace maco_cpu {
// The context that this thread runs. An executor with fibres changes it while functions that call
// the executor run; these restore it.
static thread_local RoleContext* current = nullptr;
}  // namespace maco_cpu
extern "C" __attribute__((visibility("default"))) void maco_cpu_enter(
    maco_cpu::RoleContext* context) {
  maco_cpu::current = context;
}
extern "C" __attribute__((visibility("default"))) int maco_cpu_interface() {
  return maco_cpu::kInterface;
}
#endif

// clang-format off
#include "machine.h"
#include "calls.h"
#include "cta.h"
#include "arithmetic.h"
#include "memory.h"
#include "flags.h"
#include "pair.h"
#include "copies.h"
#include "mma.h"
#include "wgmma.h"
#include "profile.h"
// clang-format on
