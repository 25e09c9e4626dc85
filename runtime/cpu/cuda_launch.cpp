#include "runtime/cpu/cuda_launch.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "runtime/cpu/block_guard.h"
#include "runtime/cpu/cuda_threads.h"
#include "runtime/cpu/fenced_memory.h"
#include "runtime/cpu/kernel_guard.h"
#include "runtime/cpu/shared_object.h"
#include "runtime/cpu/toolchain.h"

namespace maco::runtime {

namespace {

using Launch = long long (*)(const unsigned* grid, const unsigned* block, char* shared,
                             char* const* tensors, const long long* numbers);

// Inside a namespace the kernel's names can't collide with others; cooperative groups come as text.
std::string translation_unit(const std::string& original) {
  const std::string groups = "//@cooperative_groups\n";
  std::string text = original;
  if (const size_t at = text.find(groups); at != std::string::npos)
    text.replace(at, groups.size(), "#include \"cooperative_groups.cuh\"\n");
  return standard_headers(original) + "#include \"launch.h\"\nnamespace maco_original {\n" + text +
         "}  // namespace maco_original\n#include \"launch_end.h\"\n";
}

Status load(const std::string& original, Launch& launch) {
  Status status;
  std::vector<std::string> command = find_cpu_compiler(status);
  if (command.empty()) return status;
  add_flags(command, cpu_kernel_flags(false, false));
  return compile_and_load(
      {{"original.cpp", translation_unit(original)}}, std::move(command), false,
      [&](const std::string& path) {
        void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        launch = handle ? reinterpret_cast<Launch>(dlsym(handle, "maco_launch_grid")) : nullptr;
        if (!launch) {
          const char* why = dlerror();
          return Status::failure(
              fmt::format("cannot load the kernel: {}", why ? why : "no reason given"));
        }
        give_cuda_threads(handle);
        return Status{};
      });
}

}  // namespace

Status launch_cuda_kernel(const std::string& original, const std::array<int64_t, 3>& grid,
                          const std::array<int64_t, 3>& block, int64_t shared,
                          const std::vector<CudaTensor>& tensors,
                          const std::vector<int64_t>& numbers, uint64_t timeout_ms) {
  static std::mutex mutex;
  static std::map<std::string, Launch> known;  // they stay loaded
  const std::lock_guard lock(mutex);
  Launch& launch = known[original];
  if (!launch)
    if (Status s = load(original, launch); !s) return s;
  unsigned g[3], b[3];
  for (size_t a = 0; a < 3; ++a)
    g[a] = static_cast<unsigned>(grid[a]), b[a] = static_cast<unsigned>(block[a]);
  constexpr size_t align = 256;
  const size_t fence = fence_bytes(tensors.size() + 1);
  FencedMemory memory(static_cast<size_t>(shared), align, fence);
  // Copies of the tensors with red zones. One tensor may be several arguments.
  std::map<char*, FencedMemory> fenced;
  std::vector<char*> arguments;
  for (const CudaTensor& t : tensors) {
    const auto [at, added] = fenced.try_emplace(t.data, t.bytes, align, fence);
    if (added && t.bytes > 0) std::memcpy(at->second.data(), t.data, t.bytes);
    arguments.push_back(at->second.data());
  }
  const std::vector<long long> integers(numbers.begin(), numbers.end());
  const auto guard = BlockGuard::make();
  if (!guard) return Status::failure("no thread to watch the blocks of a kernel");
  const SignalStack stack;
  BlockScope scope{.patience = std::chrono::milliseconds(timeout_ms)};
  BlockScope* const before = set_block_scope(&scope);
  const long long stopped = launch(g, b, memory.data(), arguments.data(), integers.data());
  set_block_scope(before);
  if (stopped >= 0) {
    const BlockEnd end = scope.end == BlockEnd::Done ? BlockEnd::Waits : scope.end;
    std::string touched;
    for (const CudaTensor& t : tensors)
      if (const FencedMemory& copy = fenced.at(t.data);
          scope.address && touched.empty() && copy.fences(scope.address))
        touched =
            fmt::format("; it touched byte {} of '{}', which has {}",
                        static_cast<const char*>(scope.address) - copy.data(), t.name, t.bytes);
    return Status::failure("as its author wrote it: " + describe(end, stopped, timeout_ms) +
                           touched);
  }
  if (const auto at = memory.zones().damage())
    return Status::failure(fmt::format(
        "as its author wrote it, the kernel writes byte {} of its shared memory, which has {}", *at,
        shared));
  for (const CudaTensor& t : tensors) {
    const FencedMemory& copy = fenced.at(t.data);
    if (const auto at = copy.zones().damage())
      return Status::failure(
          fmt::format("as its author wrote it, the kernel writes byte {} of '{}', which has {}",
                      *at, t.name, t.bytes));
    if (t.bytes > 0) std::memcpy(t.data, copy.data(), t.bytes);
  }
  return {};
}

}  // namespace maco::runtime
