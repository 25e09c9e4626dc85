#include "runtime/host/jit.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>

#include "runtime/host/cubin_cache.h"
#include "runtime/host/nvrtc.h"

namespace maco::runtime {

std::vector<std::string> kernel_compile_options(bool profile) {
  std::vector<std::string> options = {"--std=c++17"};
  if (profile) options.push_back("-DMACO_PROFILE=1");
  return options;
}

Status compile_kernel(const std::string& source, const std::string& arch, bool verbose,
                      std::string& image, bool profile) {
  auto say = [verbose](const std::string& what) {
    if (verbose && !what.empty()) fmt::print(stderr, "maco: {}\n", what);
  };
  Status status;
  std::unique_ptr<Nvrtc> nvrtc = Nvrtc::load(status);
  if (!nvrtc) return status;
  const std::vector<std::string> options = kernel_compile_options(profile);
  const std::string key = cubin_key(source, arch, nvrtc->version(), options);
  const CubinCache cache = CubinCache::standard(status);
  if (!status) return status;
  std::string note;
  std::optional<std::string> cached = cache.load(key, note);
  say(note);
  if (cached) {
    image = std::move(*cached);
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  std::string log;
  status = nvrtc->compile(source, arch, options, image, log);
  if (!status) return status;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  say(fmt::format("compiled for {} with NVRTC {}.{} ({}) in {:.2f} s: {} bytes", arch,
                  nvrtc->version().first, nvrtc->version().second, nvrtc->path(), seconds.count(),
                  image.size()));
  say(log);
  if (!cache.folder().empty()) {
    cache.store(key, image, note);
    say(note);
  }
  return {};
}

std::optional<Arch> parse_arch(const std::string& name) {
  if (!name.starts_with("sm_")) return std::nullopt;
  int number = 0;
  const char* end = name.data() + name.size();
  auto [at, error] = std::from_chars(name.data() + 3, end, number);
  if (error != std::errc() || number < 10) return std::nullopt;
  Arch arch{number / 10, number % 10, 0};
  if (at != end && (*at == 'a' || *at == 'f')) arch.suffix = *at++;
  if (at != end) return std::nullopt;
  return arch;
}

bool runs_on(const Arch& arch, int major, int minor) {
  if (major != arch.major) return false;
  return arch.suffix == 'a' ? minor == arch.minor : minor >= arch.minor;
}

bool ptx_runs_on(const Arch& arch, int major, int minor) {
  if (arch.suffix != 0) return runs_on(arch, major, minor);
  return std::pair(major, minor) >= std::pair(arch.major, arch.minor);
}

}  // namespace maco::runtime
