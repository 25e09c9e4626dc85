// compile.cpp: all kernels go into one translation unit, each with names of its own (macros rename
// its namespaces and its entries), and so through one run of the compiler. The cache keeps the
// shared object as it keeps cubins. Manifests are left out: kernels that differ in nothing else are
// compiled once.
#include "runtime/cpu/compile.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cmake/embedded.h"
#include "runtime/cpu/toolchain.h"
#include "runtime/host/cubin_cache.h"
#include "runtime/host/sha256.h"

extern const maco::EmbeddedFile maco_cpu_intrinsics[];
extern const size_t maco_cpu_intrinsics_count;

namespace maco::runtime {
namespace {

namespace fs = std::filesystem;

// Names at global scope in kernel.cu.
constexpr const char* kGlobalNames[] = {"maco", "maco_program", "maco_kernel", "maco_reset"};

std::string translation_unit(size_t kernels) {
  std::string out = "#include \"cpu_context.h\"\n";
  for (size_t i = 0; i < kernels; ++i) {
    for (const char* name : kGlobalNames) out += fmt::format("#define {0} {0}_{1}\n", name, i);
    out += fmt::format("#include \"intrinsics.h\"\n#include \"kernel{}.cu\"\n",
                       i == 0 ? "" : fmt::format("_{}", i));
    for (const char* name : kGlobalNames) out += fmt::format("#undef {}\n", name);
  }
  return out;
}

// Without the manifest, which is comments to a compiler.
std::string code_of(const std::string& source) {
  std::istringstream in(source);
  std::string code;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("//@maco")) code += line + "\n";
  return code;
}

std::string key_of(const std::vector<std::string>& sources,
                   const std::vector<std::string>& command) {
  Sha256 hash;
  hash.add_field(fmt::format("MACOCPU{} {}", maco_cpu::kInterface, identity_of(command[0])));
  hash.add_field(fmt::to_string(command.size()));
  for (const std::string& word : command) hash.add_field(word);
  for (size_t i = 0; i < maco_cpu_intrinsics_count; ++i)
    hash.add_field(maco_cpu_intrinsics[i].text);
  hash.add_field(translation_unit(sources.size()));
  for (const std::string& source : sources) hash.add_field(source);
  return hash.hex();
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good();
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A folder of its own, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    fs::path root = fs::temp_directory_path(error);
    std::string name = ((error ? fs::path("/tmp") : root) / "maco-XXXXXX").string();
    if (mkdtemp(name.data())) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Status compile_image(const std::vector<std::string>& sources, std::vector<std::string> command,
                     const fs::path& folder, std::string& image) {
  bool written = write_file(folder / "kernels.cpp", translation_unit(sources.size()));
  for (size_t i = 0; i < maco_cpu_intrinsics_count; ++i) {
    written &= write_file(folder / fs::path(maco_cpu_intrinsics[i].name).filename(),
                          maco_cpu_intrinsics[i].text);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    written &=
        write_file(folder / (i == 0 ? "kernel.cu" : fmt::format("kernel_{}.cu", i)), sources[i]);
  }
  if (!written)
    return Status::failure(
        fmt::format("cannot write to '{}' to compile the kernel there", folder.string()));
  const fs::path object = folder / "kernels.so";
  for (const std::string& word :
       {(folder / "kernels.cpp").string(), std::string("-o"), object.string()})
    command.push_back(word);
  std::string output;
  if (!run_command(command, output)) {
    return Status::failure(
        fmt::format("'{}' could not compile the kernel for the CPU:\n{}", command[0], output));
  }
  image = read_file(object);
  return image.empty() ? Status::failure(fmt::format("'{}' wrote no shared object", command[0]))
                       : Status{};
}

std::shared_ptr<CpuLibrary> load_image(const std::string& image, const std::string& key,
                                       size_t count, const fs::path& folder, Status& status) {
  fs::path path = folder / "loaded.so";
#ifdef MACO_KERNEL_SANITIZE
  // Sanitizers read the file again when they have something to say, so it stays.
  static std::atomic<int> loaded{0};
  path = fs::temp_directory_path() / fmt::format("maco-kernels-{}", getuid()) /
         fmt::format("{}.{}.{}.so", key, getpid(), loaded++);
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
#else
  (void)key;
#endif
  if (!write_file(path, image)) {
    status = Status::failure(fmt::format("cannot write '{}'", path.string()));
    return nullptr;
  }
  return CpuLibrary::load(path.string(), count, status);
}

}  // namespace

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
  auto say = [&](const std::string& what) {
    if (options.verbose && !what.empty()) fmt::print(stderr, "maco: {}\n", what);
  };
  status = {};
  std::vector<std::string> command = find_cpu_compiler(status);
  if (command.empty()) return nullptr;
  for (std::string& flag : cpu_kernel_flags(options.check_access, options.profile))
    command.push_back(std::move(flag));
  if (options.quick) command.push_back("-Og");  // the last one counts
  std::vector<std::string> sources;
  for (const std::string& kernel : kernels) sources.push_back(code_of(kernel));

  TemporaryFolder folder;
  if (folder.path().empty()) {
    status = Status::failure(
        "cannot make a temporary folder to compile the kernel in; set TMPDIR to one that can be "
        "written");
    return nullptr;
  }
  const std::string key = key_of(sources, command);
  const CubinCache cache = CubinCache::standard();
  std::string note;
  if (std::optional<std::string> image = cache.load(key, note)) {
    if (auto library = load_image(*image, key, sources.size(), folder.path(), status)) {
      say(note);
      return library;
    }
    say("the cached kernel does not load: " + status.message);
    status = {};
  } else {
    say(note);
  }

  const auto start = std::chrono::steady_clock::now();
  std::string image;
  status = compile_image(sources, command, folder.path(), image);
  if (!status) return nullptr;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  say(fmt::format("compiled for the CPU with {} in {:.2f} s: {} bytes", command[0], seconds.count(),
                  image.size()));
  auto library = load_image(image, key, sources.size(), folder.path(), status);
  if (library && !cache.folder().empty()) {
    cache.store(key, image, note);
    say(note);
  }
  return library;
}

}  // namespace maco::runtime
