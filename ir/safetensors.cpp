#include "ir/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "ir/json_names.h"

namespace maco::ir {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the public format's own limit

constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::F32, "F32"},        {DType::F16, "F16"},        {DType::BF16, "BF16"},
    {DType::F8E4M3, "F8_E4M3"}, {DType::F8E5M2, "F8_E5M2"}, {DType::I32, "I32"},
    {DType::U8, "U8"}};

// Bytes of an element, also for types that MACO lacks; 0 if the name is not known.
uint64_t bytes_of(std::string_view dtype) {
  constexpr std::pair<std::string_view, uint64_t> sizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};
  for (const auto& [name, size] : sizes)
    if (name == dtype) return size;
  return 0;
}

// Parses one member of the header. Returns a message on failure.
std::string parse_entry(const nlohmann::json& value, SafetensorsEntry& e) {
  const auto missing = [&](const char* key) { return !value.contains(key); };
  if (!value.is_object() || missing("dtype") || missing("shape") || missing("data_offsets"))
    return "it must have dtype, shape and data_offsets";
  if (!value["dtype"].is_string()) return "its dtype is not a string";
  e.dtype = value["dtype"].get<std::string>();
  uint64_t elements = 1;
  if (!value["shape"].is_array()) return "its shape is not a list";
  for (const nlohmann::json& n : value["shape"]) {
    if (!n.is_number_unsigned()) return "its shape has something other than an extent";
    const auto extent = n.get<uint64_t>();
    if (extent > INT64_MAX || __builtin_mul_overflow(elements, extent, &elements))
      return "its shape is too large";
    e.shape.push_back(static_cast<int64_t>(extent));
  }
  const nlohmann::json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return "its data_offsets are not two numbers";
  e.begin = offsets[0].get<uint64_t>();
  e.end = offsets[1].get<uint64_t>();
  if (e.begin > e.end)
    return fmt::format("its data ends at {}, before it begins at {}", e.end, e.begin);
  const uint64_t size = bytes_of(e.dtype);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements, size, &bytes)) return "its shape is too large";
  if (size > 0 && bytes != e.end - e.begin)
    return fmt::format("{}[{}] takes {} bytes, and it has {}", e.dtype, fmt::join(e.shape, ","),
                       bytes, e.end - e.begin);
  return "";
}

// Checks that the tensors follow each other through all `size` bytes. Returns a message if they
// don't.
std::string wrong_places(const std::vector<SafetensorsEntry>& entries, uint64_t size) {
  uint64_t end = 0;
  for (const SafetensorsEntry& e : entries) {
    if (e.begin < end) return fmt::format("tensor '{}' overlaps another", e.name);
    if (e.begin > end)
      return fmt::format("{} bytes before tensor '{}' belong to none", e.begin - end, e.name);
    end = e.end;
    if (end > size)
      return fmt::format("is cut off: tensor '{}' ends at byte {} of the data, which has {}",
                         e.name, end, size);
  }
  return end == size ? "" : fmt::format("has {} bytes after the last tensor", size - end);
}

}  // namespace

std::string_view safetensors_name(DType type) {
  for (const auto& [t, name] : kNames)
    if (t == type) return name;
  return "";
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const auto& [t, n] : kNames)
    if (n == name) return t;
  return std::nullopt;
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) close(descriptor_);
}
SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_begin_, other.data_begin_);
  std::swap(entries_, other.entries_);
  std::swap(by_name_, other.by_name_);
  return *this;
}

std::string SafetensorsFile::open(const std::string& path) {
  *this = SafetensorsFile();
  path_ = path;
  const std::string why = read_header();
  return why.empty() ? "" : path + ": " + why;
}

std::string SafetensorsFile::read(uint64_t offset, void* to, size_t bytes) const {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = pread(descriptor_, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fmt::format("{}: cannot be read: {}", path_, std::strerror(errno));
    if (n == 0) return path_ + ": was cut off while it was read";
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return "";
}

// Reads the header. Returns what is wrong with the file, without its name.
std::string SafetensorsFile::read_header() {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // not to block on pipes
  struct stat info{};
  if (descriptor_ < 0 || fstat(descriptor_, &info) != 0)
    return fmt::format("cannot be opened: {}", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return "is not a file";
  bytes_ = static_cast<uint64_t>(info.st_size);

  unsigned char prefix[8];
  if (bytes_ < 8 || !read(0, prefix, 8).empty()) return "is no safetensors file: it has no header";
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (std::memcmp(prefix, "version ", 8) == 0)
    return "is a pointer of Git LFS, which stands for the file: git lfs pull brings it";
  if (length > kMaxHeader)
    return fmt::format("is no safetensors file: a header of {} bytes", length);
  if (length > bytes_ - 8)
    return fmt::format("is cut off: the header takes {} bytes and the file has {}", length,
                       bytes_ - 8);
  std::string text(length, '\0');
  if (!read(8, text.data(), length).empty()) return "cannot be read";
  data_begin_ = 8 + length;

  const auto header = nlohmann::json::parse(text, nullptr, false);
  if (header.is_discarded() || !header.is_object()) return "has a header that is no JSON object";
  const std::string twice = names_of_json(text, 1).twice;
  if (!twice.empty()) return fmt::format("names '{}' twice", twice);
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    SafetensorsEntry e;
    e.name = name;
    if (const std::string why = parse_entry(value, e); !why.empty())
      return fmt::format("tensor '{}': {}", name, why);
    entries_.push_back(std::move(e));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  for (size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
  return wrong_places(entries_, bytes_ - data_begin_);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

}  // namespace maco::ir
