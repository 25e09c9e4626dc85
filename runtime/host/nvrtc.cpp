#include "runtime/host/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/host/library.h"

namespace maco::runtime {

// The part of NVRTC's public interface that is used.
struct Nvrtc::Api {
  using Result = int;
  using Program = void*;
  Library library;
  Result (*version)(int*, int*) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*create)(Program*, const char* source, const char* name, int headers,
                   const char* const* texts, const char* const* names) = nullptr;
  Result (*destroy)(Program*) = nullptr;
  Result (*compile)(Program, int count, const char* const* options) = nullptr;
  Result (*log_size)(Program, size_t*) = nullptr;
  Result (*log)(Program, char*) = nullptr;
  Result (*cubin_size)(Program, size_t*) = nullptr;
  Result (*cubin)(Program, char*) = nullptr;
  Result (*ptx_size)(Program, size_t*) = nullptr;
  Result (*ptx)(Program, char*) = nullptr;

  bool bind_all() {
    return library.bind(version, "nvrtcVersion") &&
           library.bind(error_string, "nvrtcGetErrorString") &&
           library.bind(create, "nvrtcCreateProgram") &&
           library.bind(destroy, "nvrtcDestroyProgram") &&
           library.bind(compile, "nvrtcCompileProgram") &&
           library.bind(log_size, "nvrtcGetProgramLogSize") &&
           library.bind(log, "nvrtcGetProgramLog") &&
           library.bind(cubin_size, "nvrtcGetCUBINSize") && library.bind(cubin, "nvrtcGetCUBIN") &&
           library.bind(ptx_size, "nvrtcGetPTXSize") && library.bind(ptx, "nvrtcGetPTX");
  }
};

namespace {

namespace fs = std::filesystem;

// The packages on PyPI: nvidia-cuda-nvrtc (13) and nvidia-cuda-nvrtc-cu12.
const LibraryPlaces& places_of_nvrtc() {
  static const LibraryPlaces places = {.variable = "MACO_NVRTC",
                                       .names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
                                       .packages = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}};
  return places;
}

// NVRTC opens its built-ins by a bare name, which fails if their folder is in no loader path. Once
// they are open, NVRTC finds them.
void open_builtins(const fs::path& library) {
  std::error_code error;
  for (fs::directory_iterator it(library.parent_path(), error), end; !error && it != end;
       it.increment(error))
    if (it->path().filename().string().starts_with("libnvrtc-builtins.so."))
      dlopen(it->path().c_str(), RTLD_LAZY | RTLD_LOCAL);
}

// The folders of CUDA's own headers: beside this NVRTC, or where a toolkit says or usually is.
std::vector<std::string> header_options(const std::string& library) {
  std::vector<fs::path> roots;
  std::error_code error;
  const fs::path real = fs::canonical(library, error);
  if (!error)
    for (fs::path folder = real.parent_path(); folder.has_relative_path();
         folder = folder.parent_path())
      roots.push_back(folder);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string home = environment(variable); !home.empty()) roots.emplace_back(home);
  roots.emplace_back("/usr/local/cuda");
  for (const fs::path& root : roots)
    if (const fs::path include = root / "include"; fs::exists(include / "cuda_fp16.h", error)) {
      std::vector<std::string> options = {"--include-path=" + include.string()};
      if (fs::is_directory(include / "cccl", error))
        options.push_back("--include-path=" + (include / "cccl").string());
      return options;
    }
  return {};
}

}  // namespace

Nvrtc::Nvrtc() : api_(std::make_unique<Api>()) {}
Nvrtc::~Nvrtc() = default;

std::unique_ptr<Nvrtc> Nvrtc::load(Status& status) {
  std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
  const std::string chosen = chosen_place(places_of_nvrtc());
  nvrtc->api_->library = Library::open(candidates_of(places_of_nvrtc()), "nvrtcGetCUBIN");
  if (!nvrtc->api_->library) {
    status = Status::failure(
        !nvrtc->api_->library.why().empty() ? "NVRTC: " + nvrtc->api_->library.why()
        : chosen.empty()
            ? "NVRTC (libnvrtc.so.13 or .12) was not found: install the CUDA toolkit or 'pip "
              "install "
              "nvidia-cuda-nvrtc', or set MACO_NVRTC to the library"
            : fmt::format("NVRTC was not found where MACO_NVRTC says: '{}' is no usable libnvrtc",
                          chosen));
    return nullptr;
  }
  nvrtc->path_ = nvrtc->api_->library.path();
  open_builtins(nvrtc->path_);
  if (!nvrtc->api_->bind_all() ||
      nvrtc->api_->version(&nvrtc->version_.first, &nvrtc->version_.second) != 0) {
    status = Status::failure(
        fmt::format("'{}' is too old an NVRTC: version 12 or later is needed", nvrtc->path_));
    return nullptr;
  }
  status = {};
  return nvrtc;
}

Status Nvrtc::compile(const std::string& source, const std::string& arch,
                      const std::vector<std::string>& options, std::string& image,
                      std::string& log) const {
  image.clear();
  log.clear();
  const Api& api = *api_;
  auto failed = [&](const char* what, Api::Result result) {
    return Status::failure(fmt::format("NVRTC {}.{} could not {} for {}: {}", version_.first,
                                       version_.second, what, arch, api.error_string(result)));
  };
  Api::Program program = nullptr;
  if (auto r = api.create(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr); r != 0)
    return failed("start to compile", r);
  struct Destroy {
    const Api& api;
    Api::Program& program;
    ~Destroy() { api.destroy(&program); }
  } destroy{api, program};

  const std::string architecture = "--gpu-architecture=" + arch;
  std::vector<const char*> arguments = {architecture.c_str()};
  for (const std::string& option : options) arguments.push_back(option.c_str());
  // For users' kernels: functions and lambdas that don't say where they run are device code, as
  // nvcc treats them, and unused constants of MACO's give no warnings.
  if (source.find("\nnamespace cuda_units {") != std::string::npos)
    for (const char* option : {"--device-as-default-execution-space", "--diag-suppress=177"})
      arguments.push_back(option);
  // Only users' kernels include headers.
  const bool includes = source.find("\n#include <") != std::string::npos;
  const std::vector<std::string> headers =
      includes ? header_options(path_) : std::vector<std::string>();
  for (const std::string& option : headers) arguments.push_back(option.c_str());
  const Api::Result compiled =
      api.compile(program, static_cast<int>(arguments.size()), arguments.data());

  size_t size = 0;
  if (api.log_size(program, &size) == 0 && size > 1) {
    log.resize(size);
    api.log(program, log.data());
    log.resize(std::min(log.find('\0'), log.size()));
  }
  if (compiled != 0) {
    Status status = failed("compile the kernel", compiled);
    if (!log.empty()) status.message += "\n" + log;
    return status;
  }
  const bool ptx = arch.starts_with("compute_");
  if (auto r = (ptx ? api.ptx_size : api.cubin_size)(program, &size); r != 0)
    return failed("give the code", r);
  image.resize(size);
  if (auto r = (ptx ? api.ptx : api.cubin)(program, image.data()); r != 0)
    return failed("give the code", r);
  // PTX ends in a null character, which ptxas refuses in a file.
  if (ptx) image.resize(std::min(image.find('\0'), image.size()));
  return {};
}

}  // namespace maco::runtime
