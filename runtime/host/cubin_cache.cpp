// cubin_cache.cpp: an entry is 8 bytes "MACOCUB1", the image's length (8 bytes, little-endian), its
// SHA-256, the image. It is written under a name of its own and renamed, so that a reader sees a
// whole entry or none; the checksum finds the rest (a full disk, a crash before the data reached
// it).
#include "runtime/host/cubin_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "runtime/host/sha256.h"

namespace maco::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "MACOCUB1";
constexpr size_t kHeader = 8 + 8 + 32;
constexpr std::string_view kTemporary = ".tmp";

std::string header(const std::string& image) {
  std::string out(kMagic);
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(uint64_t{image.size()} >> (8 * i));
  Sha256 hash;
  hash.add(image);
  return out + hash.digest();
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// A new file beside `path`. Its name isn't the process id, which may recur, even at the same time
// in another container.
int open_temporary(const std::string& path, std::string& name) {
  std::random_device random;
  for (int attempt = 0;; ++attempt) {
    name = fmt::format("{}.{:08x}{:08x}{}", path, random(), random(), kTemporary);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0 || errno != EEXIST || attempt == 10) return file;
  }
}

// Removes files that killed writers left: no writer takes an hour for an entry.
void remove_stale(const fs::path& folder) {
  std::error_code error;
  const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (name.find(".cubin.") == std::string::npos || !name.ends_with(kTemporary)) continue;
    const auto written = at->last_write_time(ignored);
    if (!ignored && written < oldest) fs::remove(at->path(), ignored);
  }
}

// Whether the file's name is one that the cache gave, 64 hex digits. Other files belong to somebody
// else.
bool is_entry(const fs::path& path) {
  const std::string stem = path.stem().string();
  return path.extension() == ".cubin" && stem.size() == 64 &&
         stem.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Makes room: removes the least recently used entries, and a few more, so that it lasts a while.
void remove_unused(const fs::path& folder, int64_t most) {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code failed, vanished;
    if (!is_entry(at->path())) continue;
    const Entry entry{at->last_write_time(failed), static_cast<int64_t>(at->file_size(vanished)),
                      at->path()};
    if (failed || vanished) continue;
    bytes += entry.bytes;
    entries.push_back(entry);
  }
  if (bytes <= most) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (size_t i = 0; i + 1 < entries.size() && bytes > most - most / 10; ++i) {
    const Entry& entry = entries[i];
    std::error_code ignored;
    fs::remove(entry.path, ignored);
    bytes -= entry.bytes;
  }
}

// An entry's time is that of its last use, accurate to a minute.
void touch(const std::string& path) {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  const auto used = fs::last_write_time(path, error);
  if (!error && now - used > std::chrono::minutes(1)) fs::last_write_time(path, now, error);
}

int64_t most_allowed(Status& status) {
  const char* text = std::getenv("MACO_CACHE_MB");
  if (!text) return CubinCache::kMostBytes;
  constexpr int64_t kMost = int64_t{1} << 40;
  const char* end = text + std::strlen(text);
  int64_t megabytes = 0;
  const auto [at, error] = std::from_chars(text, end, megabytes);
  if (error == std::errc() && at == end && megabytes >= 0 && megabytes <= kMost)
    return megabytes << 20;
  status = Status::failure(
      fmt::format("MACO_CACHE_MB is '{}', which is no number of megabytes from 0 to 2^40", text));
  return CubinCache::kMostBytes;
}

// Whether the folder exists or could be made.
bool may_be_folder(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error).lexically_normal();
  while (!path.empty() && path != path.root_path() &&
         fs::symlink_status(path, error).type() == fs::file_type::not_found)
    path = path.parent_path();
  return fs::is_directory(path, error);
}

}  // namespace

std::string cubin_key(const std::string& source, const std::string& arch,
                      std::pair<int, int> nvrtc_version, const std::vector<std::string>& options) {
  Sha256 hash;
  hash.add_field(kMagic);
  hash.add_field(fmt::format("{} nvrtc {}.{} options {}", arch, nvrtc_version.first,
                             nvrtc_version.second, options.size()));
  for (const std::string& option : options) hash.add_field(option);
  hash.add_field(source);
  return hash.hex();
}

CubinCache CubinCache::standard(Status& status) {
  const int64_t most = most_allowed(status);
  if (const char* own = std::getenv("MACO_CACHE_DIR")) {
    if (status && *own && !may_be_folder(own))
      status = Status::failure(fmt::format(
          "MACO_CACHE_DIR is '{}', where no folder can be made (set it to nothing for no cache)",
          own));
    return CubinCache(own, most);
  }
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return CubinCache(std::string(xdg) + "/maco", most);
  if (const char* home = std::getenv("HOME"); home && *home)
    return CubinCache(std::string(home) + "/.cache/maco", most);
  return CubinCache("");
}

std::optional<std::string> CubinCache::load(const std::string& key, std::string& note) const {
  if (folder_.empty()) {
    note = "no cubin cache";
    return std::nullopt;
  }
  const std::string path = folder_ + "/" + key + ".cubin";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    note = fmt::format("not in the cubin cache {}", folder_);
    return std::nullopt;
  }
  std::ostringstream stream;
  stream << file.rdbuf();
  std::string entry = std::move(stream).str();
  if (entry.size() >= kHeader) {
    std::string image = entry.substr(kHeader);
    if (entry.compare(0, kHeader, header(image)) == 0) {
      note = fmt::format("from the cubin cache {}", path);
      touch(path);
      return image;
    }
  }
  note = fmt::format("{} is damaged and will be replaced", path);
  return std::nullopt;
}

bool CubinCache::store(const std::string& key, const std::string& image, std::string& note) const {
  if (folder_.empty()) {
    note = "no cubin cache";
    return false;
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  remove_stale(folder_);
  const std::string path = folder_ + "/" + key + ".cubin";
  std::string temporary;
  const int file = open_temporary(path, temporary);
  if (file < 0) {
    note = fmt::format("the cubin cache {} can't be written: {}", folder_, std::strerror(errno));
    return false;
  }
  const bool written = write_all(file, header(image)) && write_all(file, image);
  const bool closed = ::close(file) == 0;
  if (!written || !closed || ::rename(temporary.c_str(), path.c_str()) != 0) {
    note = fmt::format("the cubin cache {} can't be written: {}", folder_, std::strerror(errno));
    ::unlink(temporary.c_str());
    return false;
  }
  note = fmt::format("kept in the cubin cache {}", path);
  remove_unused(folder_, most_bytes_);
  return true;
}

}  // namespace maco::runtime
