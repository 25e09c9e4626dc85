#include "runtime/host/driver.h"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/host/library.h"

namespace maco::runtime::cuda {

std::unique_ptr<Driver> Driver::load(Status& status, const std::string& library_name) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  // Ranks that share a GPU must not share a hardware queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const Library library = Library::open({library_name}, "cuInit");
  if (!library) {
    status = Status::failure(
        library.why().empty()
            ? fmt::format("no device: this machine has no NVIDIA driver ({} was not found)",
                          library_name)
            : "no device: the NVIDIA driver " + library.why());
    return nullptr;
  }
  std::unique_ptr<Driver> driver(new Driver);
#define MACO_BIND(member, name, parameters)                                                   \
  driver->member = reinterpret_cast<decltype(driver->member)>(library.symbol(name));          \
  if (!driver->member) {                                                                      \
    status = Status::failure(                                                                 \
        fmt::format("the NVIDIA driver {} lacks {}: a driver for CUDA 12 or later is needed", \
                    library.path(), name));                                                   \
    return nullptr;                                                                           \
  }
  MACO_CUDA_FUNCTIONS(MACO_BIND)
#undef MACO_BIND

  if (Result r = driver->init(0); r != kSuccess) {
    status = driver->check(r, "start the NVIDIA driver");
    status.message = "no device: " + status.message;
    return nullptr;
  }
  int count = 0;
  status = driver->check(driver->device_count(&count), "count the GPUs");
  if (status && count == 0) status = Status::failure("no device: the NVIDIA driver shows no GPU");
  if (!status) return nullptr;
  driver->driver_version(&driver->version_);
  for (int i = 0; i < count; ++i) {
    DeviceInfo info;
    info.index = i;
    char name[256] = "";
    int cooperative = 0;
    auto get = [&](int* value, int attribute) {
      return driver->check(driver->device_attribute(value, attribute, info.device),
                           fmt::format("query GPU {}", i));
    };
    status = driver->check(driver->device_get(&info.device, i), fmt::format("find GPU {}", i));
    if (status)
      status = driver->check(driver->device_name(name, sizeof name, info.device),
                             fmt::format("ask GPU {} for its name", i));
    if (status) status = get(&info.major, kComputeMajor);
    if (status) status = get(&info.minor, kComputeMinor);
    if (status) status = get(&info.multiprocessors, kMultiprocessors);
    if (status) status = get(&info.shared_bytes, kSharedPerBlockOptin);
    if (status) status = get(&cooperative, kCooperativeLaunch);
    if (!status) return nullptr;
    info.name = name;
    info.cooperative = cooperative != 0;
    driver->devices_.push_back(std::move(info));
  }
  return driver;
}

Status Driver::check(Result result, const std::string& what) const {
  if (result == kSuccess) return {};
  const char *name = nullptr, *text = nullptr;
  error_name(result, &name);
  error_string(result, &text);
  return Status::failure(fmt::format("could not {}: {}: {}", what,
                                     name ? name : fmt::format("CUDA error {}", result),
                                     text ? text : "unknown"));
}

}  // namespace maco::runtime::cuda
