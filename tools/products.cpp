#include "tools/products.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace maco::tools {

namespace fs = std::filesystem;

namespace {

std::string cannot(const std::string& path, const std::string& why) {
  return fmt::format("can't write '{}': {}", path, why);
}

// Whether it is a device or a pipe, or a name of an open file (/dev/stdout), to which a shell may
// append.
bool is_special(const std::string& path) {
  std::error_code code;
  if (path.rfind("/dev/", 0) == 0 || path.rfind("/proc/", 0) == 0) return true;
  return fs::exists(path, code) && !fs::is_regular_file(path, code) &&
         !fs::is_directory(path, code);
}

// The target of a link, whether it exists or not: the link stays.
std::string followed(const std::string& path) {
  std::error_code code;
  fs::path file = path;
  for (int links = 0; links < 40 && !is_special(file.string()) && fs::is_symlink(file, code);
       ++links) {
    const fs::path target = fs::read_symlink(file, code);
    file = target.is_absolute() ? target : file.parent_path() / target;
  }
  return file.string();
}

// A name beside the file, so that it can replace the file; no longer than names may be, whatever
// the file's.
std::string temporary_for(const std::string& file) {
  static std::atomic<int> count{0};
  return (fs::path(file).parent_path() / fmt::format(".maco-{}-{}.tmp", getpid(), count++))
      .string();
}

}  // namespace

bool can_write(const std::string& path, std::string& error) {
  std::error_code code;
  std::string file = followed(path);
  const std::string folder = fs::path(file).parent_path().string(),
                    where = folder.empty() ? "." : folder;
  if (fs::is_directory(file, code)) {
    error = cannot(path, "it is a folder");
  } else if (!fs::is_directory(where, code)) {
    error = cannot(path, fmt::format("there is no folder '{}'", where));
  } else if (access((is_special(file) ? file : where).c_str(),
                    is_special(file) ? W_OK : W_OK | X_OK) != 0) {
    error = cannot(path, std::strerror(errno));
  }
  return error.empty();
}

Products::~Products() {
  std::error_code code;
  for (const File& f : files_) fs::remove(f.temporary, code);
}

std::string Products::begin(const std::string& path) {
  std::string file = followed(path);
  if (is_special(file)) return file;
  files_.push_back({file, temporary_for(file)});
  return files_.back().temporary;
}

bool Products::finish(std::string& error) {
  std::error_code code, ignored;
  const auto old = [](const File& f) { return f.temporary + ".old"; };
  size_t placed = 0;
  for (; placed < files_.size(); ++placed) {
    const File& f = files_[placed];
    // An old file is moved aside while later files may still fail; after the last one nothing can
    // fail.
    if (placed + 1 < files_.size() && fs::is_regular_file(f.path, ignored))
      fs::rename(f.path, old(f), code);
    if (!code) fs::rename(f.temporary, f.path, code);
    if (code) break;
  }
  if (code) {
    error = cannot(files_[placed].path, code.message());
    for (size_t i = 0; i <= placed; ++i) {
      if (i < placed) fs::remove(files_[i].path, ignored);
      if (fs::exists(old(files_[i]), ignored)) fs::rename(old(files_[i]), files_[i].path, ignored);
    }
    return false;
  }
  for (const File& f : files_) fs::remove(old(f), ignored);
  files_.clear();
  return true;
}

bool write_product(const std::string& path, const std::string& bytes, std::string& error) {
  if (path == "-") {
    std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::cout.flush();
    if (!std::cout) error = "can't write to standard output";
    return error.empty();
  }
  if (!can_write(path, error)) return false;
  Products products;
  // What a shell has appended to an open file stays.
  std::ofstream out(products.begin(path),
                    is_special(path) ? std::ios::binary | std::ios::app : std::ios::binary);
  out << bytes;
  out.close();
  if (!out) error = cannot(path, std::strerror(errno));
  return error.empty() && products.finish(error);
}

}  // namespace maco::tools
