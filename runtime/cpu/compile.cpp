// compile.cpp: all kernels go into one translation unit, and so through one run of the compiler.
// Macros give each kernel names of its own for its namespaces and entries. The cache keeps the
// shared object as it keeps cubins. Manifests are left out, so that kernels that differ only in
// them are compiled once.
#include "runtime/cpu/compile.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/cpu/cuda_threads.h"
#include "runtime/cpu/shared_object.h"
#include "runtime/cpu/toolchain.h"

namespace maco::runtime {
namespace {

// Names at global scope in kernel.cu.
constexpr const char* kGlobalNames[] = {"maco", "maco_program", "maco_kernel", "maco_reset",
                                        "cuda_units"};

// Flags that make the compiler report each access (cuda/instrumented.h). Sanitizers exclude them.
bool can_instrument() {
#ifdef MACO_KERNEL_SANITIZE
  return false;
#else
  return true;
#endif
}
std::vector<std::string> instrumenting_flags(const std::string& compiler) {
  // Functions that copy memory stay calls, to functions of cuda/instrumented.h.
  std::vector<std::string> flags = {"-fsanitize=kernel-address", "-fno-builtin-memcpy",
                                    "-fno-builtin-memmove", "-fno-builtin-memset"};
  const bool clang = compiler.find("clang") != std::string::npos;
  for (const char* setting :
       {"asan-instrumentation-with-call-threshold=0", "asan-stack=0", "asan-globals=0"}) {
    flags.emplace_back(clang ? "-mllvm" : "--param");
    flags.push_back((clang ? "-" : "") + std::string(setting));
  }
  return flags;
}

std::string translation_unit(const std::vector<std::string>& sources, bool instrumented) {
  std::string out = "#include \"cpu_context.h\"\n";
  if (std::any_of(sources.begin(), sources.end(), has_cuda_units)) {
    for (const std::string& source : sources)
      if (const size_t units = source.find("namespace cuda_units {"); units != std::string::npos)
        out += standard_headers(std::string_view(source).substr(units));
    out += "#include \"block.h\"\n#include \"words.h\"\n#define MACO_CG inline\n";
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const char* name : kGlobalNames) out += fmt::format("#define {0} {0}_{1}\n", name, i);
    out += fmt::format("#include \"intrinsics.h\"\n#include \"kernel{}.cu\"\n",
                       i == 0 ? "" : fmt::format("_{}", i));
    for (const char* name : kGlobalNames) out += fmt::format("#undef {}\n", name);
  }
  if (instrumented) out += "#include \"instrumented.h\"\n";
  return out;
}

// The source without the manifest, which is comments to a compiler.
std::string code_of(const std::string& source) {
  std::istringstream in(source);
  std::string code;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("//@maco")) code += line + "\n";
  return code;
}

}  // namespace

bool has_cuda_units(const std::string& source) {
  return source.find("\nnamespace cuda_units {") != std::string::npos;
}

CpuLibrary::~CpuLibrary() {
  if (handle_) dlclose(handle_);
}

std::shared_ptr<CpuLibrary> CpuLibrary::load(const std::string& path, size_t count,
                                             Status& status) {
  std::shared_ptr<CpuLibrary> library(new CpuLibrary);
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->handle_) {
    const char* why = dlerror();
    status = Status::failure(
        fmt::format("cannot load the compiled kernel: {}", why ? why : "no reason given"));
    return nullptr;
  }
  give_cuda_threads(library->handle_);
  bool complete = true;
  auto find = [&](const std::string& name) {
    void* address = dlsym(library->handle_, name.c_str());
    if (!address) complete = false;
    return address;
  };
  library->enter_ = reinterpret_cast<void (*)(maco_cpu::RoleContext*)>(find("maco_cpu_enter"));
  auto interface = reinterpret_cast<int (*)()>(find("maco_cpu_interface"));
  for (size_t i = 0; i < count; ++i) {
    library->kernels_.push_back(reinterpret_cast<Entry>(find(fmt::format("maco_kernel_{}", i))));
    library->resets_.push_back(reinterpret_cast<Entry>(find(fmt::format("maco_reset_{}", i))));
  }
  if (!complete || interface() != maco_cpu::kInterface) {
    status =
        Status::failure("the kernel has no maco_kernel and maco_reset of this version of MACO");
    return nullptr;
  }
  return library;
}

std::shared_ptr<CpuLibrary> compile_cpu_kernels(const std::vector<std::string>& kernels,
                                                const CpuCompileOptions& options, Status& status) {
  status = {};
  std::vector<std::string> command = find_cpu_compiler(status);
  if (command.empty()) return nullptr;
  std::vector<std::string> flags = cpu_kernel_flags(options.check_access, options.profile);
  if (options.quick) flags.push_back("-O0");  // the last -O flag counts
  add_flags(command, std::move(flags));
  std::vector<std::string> sources;
  for (const std::string& kernel : kernels) sources.push_back(code_of(kernel));

  const bool instrumented = options.check_access && can_instrument() &&
                            std::any_of(sources.begin(), sources.end(), has_cuda_units);
  if (instrumented)
    for (std::string& flag : instrumenting_flags(command[0])) command.push_back(std::move(flag));
  std::vector<SourceFile> files = {{"kernels.cpp", translation_unit(sources, instrumented)}};
  for (size_t i = 0; i < sources.size(); ++i)
    files.push_back({i == 0 ? "kernel.cu" : fmt::format("kernel_{}.cu", i), std::move(sources[i])});
  std::shared_ptr<CpuLibrary> library;
  status =
      compile_and_load(files, std::move(command), options.verbose, [&](const std::string& path) {
        Status loaded;
        library = CpuLibrary::load(path, kernels.size(), loaded);
        return loaded;
      });
  return library;
}

}  // namespace maco::runtime
