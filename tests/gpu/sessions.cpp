// Sessions are opened, run and closed again and again: afterwards the GPU has as much free memory
// as before. On a CPU the address sanitizer checks this.
#include <fmt/format.h>

#include <stdexcept>

#include "compiler/api/compile.h"
#include "runtime/host/driver.h"
#include "tests/examples.h"
#include "tests/gpu/device_test.h"

namespace maco::gpu_test {

namespace {

namespace cuda = runtime::cuda;
using runtime::Status;

// Free memory of the GPUs that a placement uses, whose contexts it keeps.
class FreeMemory {
 public:
  FreeMemory(const Device& device, const Placement& placement) {
    if (!device.cuda) return;
    Status status;
    driver_ = cuda::Driver::load(status);
    if (!status) throw std::runtime_error(status.message);
    for (int gpu = 0; gpu < placement.gpus(); ++gpu) {
      devices_.push_back(driver_->devices()[static_cast<size_t>(gpu)].device);
      check(driver_->context_retain(&contexts_.emplace_back(), devices_.back()));
    }
  }
  FreeMemory(const FreeMemory&) = delete;
  FreeMemory& operator=(const FreeMemory&) = delete;
  ~FreeMemory() {
    for (const cuda::Device device : devices_) driver_->context_release(device);
  }
  std::vector<size_t> now() const {
    std::vector<size_t> all;
    for (const cuda::Context context : contexts_) {
      size_t total = 0;
      check(driver_->context_set(context));
      check(driver_->memory_info(&all.emplace_back(), &total));
    }
    return all;
  }

 private:
  void check(cuda::Result result) const {
    if (const Status s = driver_->check(result, "ask for free memory"); !s)
      throw std::runtime_error(s.message);
  }
  std::unique_ptr<cuda::Driver> driver_;
  std::vector<cuda::Device> devices_;
  std::vector<cuda::Context> contexts_;
};

std::string open_and_close(const Device& device, const Placement& placement, int count) {
  if (device.cuda && device.lock >= 0)
    throw Skip{"other processes take and give memory meanwhile (run it without --lock)"};
  const api::Compiled c =
      compile_text(device, test::example_text(device.examples + "/decode_layer.maco"), placement);
  const auto run = [&] {
    Status status;
    const auto session = make_session(device, c.kernel, placement, {}, status);
    if (status) bind(c.graph, *session, 1);
    if (status) status = session->launch({{"pos", 1}});
    if (!status) throw std::runtime_error(status.message);
  };
  const FreeMemory free(device, placement);
  // What the driver keeps after its first use stays allocated.
  for (int i = 0; i < 3; ++i) run();
  const std::vector<size_t> before = free.now();
  for (int i = 0; i < count; ++i) run();
  const std::vector<size_t> after = free.now();
  for (size_t gpu = 0; gpu < before.size(); ++gpu)
    if (after[gpu] < before[gpu])
      return fmt::format("GPU {} has {} bytes less behind {} sessions", gpu,
                         before[gpu] - after[gpu], count);
  return "";
}

}  // namespace

void add_session_cases(const Device& device, std::vector<Case>& cases) {
  const int count = device.cuda ? 100 : 20;
  add_cases(device, cases, 2, fmt::format("{} sessions", count),
            [=](const Placement& placement) { return open_and_close(device, placement, count); });
}

}  // namespace maco::gpu_test
