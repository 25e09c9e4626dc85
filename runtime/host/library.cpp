#include "runtime/host/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace maco::runtime {

namespace {

// Whether the file exists that the loader says it can't load.
bool is_there(const std::string& candidate, const std::string& said) {
  std::error_code error;
  if (candidate.find('/') != candidate.npos)
    return std::filesystem::is_regular_file(candidate, error);
  return said.rfind(candidate + ": cannot open shared object file", 0) != 0;
}

}  // namespace

Library Library::open(const std::vector<std::string>& candidates, const char* probe) {
  Library none;
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* error = dlerror();
      const std::string said = error ? error : "the loader doesn't say why";
      if (none.why_.empty() && is_there(candidate, said))
        none.why_ = fmt::format("'{}' was found but doesn't load: {}", candidate, said);
      continue;
    }
    void* found = dlsym(handle, probe);
    if (!found) {
      dlclose(handle);
      if (none.why_.empty())
        none.why_ = fmt::format("'{}' was found but lacks {}", candidate, probe);
      continue;
    }
    Library library;
    library.handle_ = handle;
    Dl_info info{};
    library.path_ = dladdr(found, &info) && info.dli_fname ? info.dli_fname : candidate;
    return library;
  }
  return none;
}

void* Library::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

namespace {

namespace fs = std::filesystem;

// Adds the library under its names, and under longer names, newest first.
void add_folder(const LibraryPlaces& places, const fs::path& folder,
                std::vector<std::string>& out) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  for (const char* name : places.names)
    if (fs::exists(folder / name, error)) out.push_back((folder / name).string());
  const std::string longer = std::string(places.names.back()) + ".";
  std::vector<std::string> versioned;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(longer))
      versioned.push_back(it->path().string());
  std::sort(versioned.rbegin(), versioned.rend());
  out.insert(out.end(), versioned.begin(), versioned.end());
}

void add_python(const LibraryPlaces& places, const fs::path& prefix,
                std::vector<std::string>& out) {
  std::error_code error;
  for (fs::directory_iterator it(prefix / "lib", error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().filename().string().starts_with("python3")) continue;
    for (const char* installed : {"site-packages", "dist-packages"})
      for (const char* package : places.packages)
        add_folder(places, it->path() / installed / package, out);
  }
}

void add_venv_above(const LibraryPlaces& places, fs::path folder, std::vector<std::string>& out) {
  std::error_code error;
  for (; !folder.empty(); folder = folder.parent_path()) {
    if (fs::is_directory(folder / ".venv", error)) return add_python(places, folder / ".venv", out);
    if (folder == folder.parent_path()) return;
  }
}

void add_path_python(const LibraryPlaces& places, std::vector<std::string>& out) {
  std::error_code error;
  const std::string path = environment("PATH");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const fs::path bin = path.substr(at, end - at);
    at = end + 1;
    if (bin.is_absolute() && fs::exists(bin / "python3", error))
      return add_python(places, bin.parent_path(), out);
  }
}

}  // namespace

std::string chosen_place(const LibraryPlaces& places) { return environment(places.variable); }

std::vector<std::string> candidates_of(const LibraryPlaces& places) {
  std::vector<std::string> out;
  std::error_code error;
  if (const std::string chosen = chosen_place(places); !chosen.empty()) {
    if (!fs::is_directory(chosen, error)) return {chosen};
    add_folder(places, chosen, out);
    return out;
  }
  out.assign(places.names.begin(), places.names.end());
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string home = environment(variable); !home.empty())
      for (const char* lib : {"lib64", "lib"}) add_folder(places, fs::path(home) / lib, out);
  add_folder(places, "/usr/local/cuda/lib64", out);
  add_venv_above(places, fs::current_path(error), out);
  add_venv_above(places, fs::read_symlink("/proc/self/exe", error).parent_path(), out);
  if (const std::string venv = environment("VIRTUAL_ENV"); !venv.empty())
    add_python(places, venv, out);
  add_path_python(places, out);
  return out;
}

}  // namespace maco::runtime
