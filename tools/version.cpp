#include "tools/version.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "compiler/frontend/cuda_kernels.h"
#include "runtime/cpu/toolchain.h"
#include "runtime/host/driver.h"
#include "runtime/host/nccl.h"
#include "runtime/host/nvrtc.h"

namespace maco::tools {

namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string driver_text() {
  runtime::Status status;
  const auto driver = runtime::cuda::Driver::load(status);
  if (!driver) return first_line(status.message);
  std::map<std::string, int> gpus;
  for (const auto& d : driver->devices())
    ++gpus[fmt::format("{} (sm_{}{})", d.name, d.major, d.minor)];
  std::string text =
      fmt::format("for CUDA {}.{}", driver->version() / 1000, driver->version() % 1000 / 10);
  for (const auto& [name, count] : gpus) text += fmt::format("; {} x {}", count, name);
  return text;
}

std::string nvrtc_text() {
  runtime::Status status;
  const auto nvrtc = runtime::Nvrtc::load(status);
  if (!nvrtc) return first_line(status.message);
  return fmt::format("{}.{}, {}", nvrtc->version().first, nvrtc->version().second, nvrtc->path());
}

std::string nccl_text() {
  runtime::Status status;
  const auto nccl = runtime::Nccl::load(status);
  if (!nccl) return first_line(status.message);
  return fmt::format("{}, {}", nccl->version(), nccl->path());
}

std::string compiler_text() {
  runtime::Status status;
  std::vector<std::string> command = runtime::find_cpu_compiler(status);
  if (command.empty()) return first_line(status.message);
  const std::string program = command[0];
  command.emplace_back("--version");
  std::string said;
  if (!runtime::run_command(command, said)) return program + ", which doesn't say its version";
  return fmt::format("{}, {}", first_line(said), program);
}

}  // namespace

const char* version() { return MACO_PROJECT_VERSION; }

std::string version_text() {
  return fmt::format(
      "maco {}\n"
      "built with    {}\n"
      "CUDA driver   {}\n"
      "NVRTC         {}\n"
      "NCCL          {}\n"
      "C++ compiler  {}\n"
      "CUDA kernels  {}",
      version(), MACO_COMPILER, driver_text(), nvrtc_text(), nccl_text(), compiler_text(),
      frontend::describe_cuda_reader());
}

}  // namespace maco::tools
