// The CUDA driver, opened at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/host/driver_api.h"
#include "runtime/host/session.h"

namespace maco::runtime::cuda {

struct DeviceInfo {
  Device device = 0;
  int index = 0;
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int shared_bytes = 0;  // the most a CTA can have
  bool cooperative = false;
};

/// The driver's functions, as members by the names of driver_api.h, after a successful cuInit.
class Driver {
 public:
#define MACO_DECLARE(member, symbol, parameters) Result(*member) parameters = nullptr;
  MACO_CUDA_FUNCTIONS(MACO_DECLARE)
#undef MACO_DECLARE

  /// Opens the driver and initialises it, with eager loading of modules set before (a lazy load
  /// while a peer's kernel spins would never end). Null with a one-line reason if there is no
  /// driver or no device.
  static std::unique_ptr<Driver> load(Status& status, const std::string& library = "libcuda.so.1");

  const std::vector<DeviceInfo>& devices() const { return devices_; }
  int version() const { return version_; }  // 13000
  /// Ok, or "could not <what>: CUDA_ERROR_...: ...".
  Status check(Result result, const std::string& what) const;

 private:
  Driver() = default;
  std::vector<DeviceInfo> devices_;
  int version_ = 0;
};

/// What its scope does leaves the calling thread's current context as it was, since an application
/// has its own, and is allowed while that captures a stream on some thread.
class ContextGuard {
 public:
  explicit ContextGuard(const Driver& driver) : driver_(driver) {
    known_ = driver_.context_get(&before_) == kSuccess;
    exchanged_ = driver_.exchange_capture_mode(&mode_) == kSuccess;
  }
  ~ContextGuard() {
    if (exchanged_) driver_.exchange_capture_mode(&mode_);
    if (known_) driver_.context_set(before_);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const Driver& driver_;
  Context before_ = nullptr;
  int mode_ = kCaptureRelaxed;
  bool known_ = false, exchanged_ = false;
};

}  // namespace maco::runtime::cuda
