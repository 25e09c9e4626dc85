// Sessions on the CPU: ranks and CTAs as threads or fibres of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/program.h"
#include "runtime/cpu/access.h"
#include "runtime/cpu/compile.h"
#include "runtime/cpu/stepper.h"
#include "runtime/host/device_session.h"

namespace maco::runtime {

class CpuSession : public DeviceSession, public Steppable {
 public:
  using DeviceSession::DeviceSession;
  /// Sets what each task may touch, for SessionOptions::check_access: by the planned and scheduled
  /// Program from which the kernel was made. From then on a launch fails if a task touches anything
  /// else, or doesn't write all that it declares as written. With a `guard`, which must live during
  /// launches, kernels that crash or don't end are also reported.
  virtual Status set_regions(const ir::Program& program, KernelGuard* guard = nullptr) = 0;
  /// For a kernel with users' kernels: memory that they spoil may cause a crash later and
  /// elsewhere, which `guard` then reports.
  virtual void set_guard(KernelGuard* guard) = 0;
  /// After a launch with regions: the traffic of the tasks of each call of that Program, on all
  /// ranks.
  virtual std::vector<Traffic> traffic() const = 0;
};

/// Compiles a kernel.cu (for any target) and allocates its memory on all ranks, filled with zeros.
/// Returns null, and a status, if that fails.
std::unique_ptr<CpuSession> make_cpu_session(const std::string& kernel_source,
                                             const SessionOptions& options, Status& status);

/// The same for kernel `index` of a library that was compiled from `kernel_source` among others.
std::unique_ptr<CpuSession> make_cpu_session(std::shared_ptr<CpuLibrary> library, size_t index,
                                             const std::string& kernel_source,
                                             const SessionOptions& options, Status& status);

}  // namespace maco::runtime
