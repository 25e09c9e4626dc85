#include "runtime/reference/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace maco::reference {

using runtime::Status;

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the public format's own limit

constexpr std::pair<ir::DType, std::string_view> kNames[] = {
    {ir::DType::F32, "F32"},        {ir::DType::F16, "F16"},        {ir::DType::BF16, "BF16"},
    {ir::DType::F8E4M3, "F8_E4M3"}, {ir::DType::F8E5M2, "F8_E5M2"}, {ir::DType::I32, "I32"},
    {ir::DType::U8, "U8"}};

// Bytes of an element, of types that MACO lacks too; 0 if the name is not known.
uint64_t bytes_of(std::string_view dtype) {
  constexpr std::pair<std::string_view, uint64_t> sizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};
  for (const auto& [name, size] : sizes)
    if (name == dtype) return size;
  return 0;
}

// Reads all `size` bytes at `offset`.
bool read_at(int descriptor, void* to, uint64_t size, uint64_t offset) {
  auto* p = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = pread(descriptor, p, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<uint64_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

bool write_all(int descriptor, const void* from, size_t size) {
  const auto* p = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = ::write(descriptor, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Follows the header's JSON for the names that it gives tensors. (A callback of the parser's would
// do, but for each object that ends it looks at all members of the one around it.)
class Names : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string twice;  // the last name that was there already

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return ++depth_, true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return ++depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& name) override {
    if (depth_ == 1 && !names_.insert(name).second) twice = name;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  int64_t depth_ = 0;
  std::set<std::string> names_;
};

std::string named_twice(const std::string& header) {
  Names names;
  nlohmann::json::sax_parse(header, &names);
  return names.twice;
}

// One member of the header; a message on failure.
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
    return fmt::format("{}{} takes {} bytes, and it has {}", e.dtype, to_string(e.shape), bytes,
                       e.end - e.begin);
  return "";
}

}  // namespace

std::string_view safetensors_name(ir::DType type) {
  for (const auto& [t, name] : kNames)
    if (t == type) return name;
  return "";
}

std::optional<ir::DType> dtype_from_safetensors(std::string_view name) {
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
  std::swap(data_begin_, other.data_begin_);
  std::swap(entries_, other.entries_);
  std::swap(by_name_, other.by_name_);
  return *this;
}

Status SafetensorsFile::open(const std::string& path) {
  *this = SafetensorsFile();
  path_ = path;
  auto bad = [&](const std::string& why) {
    return Status::failure(fmt::format("{}: {}", path, why));
  };
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info{};
  if (descriptor_ < 0 || fstat(descriptor_, &info) != 0)
    return bad(fmt::format("cannot be opened: {}", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return bad("is not a file");
  const auto size = static_cast<uint64_t>(info.st_size);

  unsigned char prefix[8];
  if (size < 8 || !read_at(descriptor_, prefix, 8, 0))
    return bad("is no safetensors file: it has no header");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (std::memcmp(prefix, "version ", 8) == 0)
    return bad("is a pointer of Git LFS, which stands for the file: git lfs pull brings it");
  if (length > kMaxHeader)
    return bad(fmt::format("is no safetensors file: a header of {} bytes", length));
  if (length > size - 8)
    return bad(
        fmt::format("is cut off: the header takes {} bytes and the file has {}", length, size - 8));
  std::string text(length, '\0');
  if (!read_at(descriptor_, text.data(), length, 8)) return bad("cannot be read");
  data_begin_ = 8 + length;

  const auto header = nlohmann::json::parse(text, nullptr, false);
  if (header.is_discarded() || !header.is_object())
    return bad("has a header that is no JSON object");
  const std::string twice = named_twice(text);
  if (!twice.empty()) return bad(fmt::format("names '{}' twice", twice));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    SafetensorsEntry e;
    e.name = name;
    if (const std::string why = parse_entry(value, e); !why.empty())
      return bad(fmt::format("tensor '{}': {}", name, why));
    entries_.push_back(std::move(e));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  for (size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
  uint64_t end = 0;
  for (const SafetensorsEntry& e : entries_) {
    if (e.begin < end) return bad(fmt::format("tensor '{}' overlaps another", e.name));
    if (e.begin > end)
      return bad(fmt::format("{} bytes before tensor '{}' belong to none", e.begin - end, e.name));
    end = e.end;
    if (end > size - data_begin_)
      return bad(fmt::format("is cut off: tensor '{}' ends at byte {} of the data, which has {}",
                             e.name, end, size - data_begin_));
  }
  if (end != size - data_begin_)
    return bad(fmt::format("has {} bytes after the last tensor", size - data_begin_ - end));
  return {};
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

Status SafetensorsFile::read(const SafetensorsEntry& entry, Tensor& tensor) const {
  const auto type = dtype_from_safetensors(entry.dtype);
  if (!type)
    return Status::failure(fmt::format("{}: tensor '{}' is {}, which MACO has no type for", path_,
                                       entry.name, entry.dtype));
  tensor = Tensor(*type, entry.shape);
  if (!read_at(descriptor_, tensor.bytes.data(), tensor.bytes.size(), data_begin_ + entry.begin))
    return Status::failure(fmt::format("{}: cannot be read: {}", path_, std::strerror(errno)));
  return {};
}

Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, const Tensor*>>& tensors) {
  // Large elements first, so that everything is aligned, as the format's own library does.
  auto order = tensors;
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const int64_t sa = ir::size_of(a.second->dtype), sb = ir::size_of(b.second->dtype);
    return sa != sb ? sa > sb : a.first < b.first;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // No two tensors have one name: as a list that needs no search for each.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  uint64_t at = 0;
  for (const auto& [name, tensor] : order) {
    const uint64_t end = at + tensor->bytes.size();
    members.emplace_back(name, nlohmann::ordered_json{{"dtype", safetensors_name(tensor->dtype)},
                                                      {"shape", tensor->shape},
                                                      {"data_offsets", {at, end}}});
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  unsigned char prefix[8];
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<unsigned char>(text.size() >> (8 * i));

  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return Status::failure(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  bool ok = write_all(descriptor, prefix, 8) && write_all(descriptor, text.data(), text.size());
  for (const auto& [name, tensor] : order)
    ok = ok && write_all(descriptor, tensor->bytes.data(), tensor->bytes.size());
  int error = ok ? 0 : errno;
  if (close(descriptor) != 0 && ok) error = errno;
  if (error != 0) {
    std::error_code code;
    if (std::filesystem::is_regular_file(path, code)) unlink(path.c_str());
    return Status::failure(fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
  }
  return {};
}

std::string rank_file(const std::string& pattern, int rank) {
  constexpr std::string_view kRank = "{rank}";
  std::string out = pattern;
  const std::string number = std::to_string(rank);
  for (size_t at = out.find(kRank); at != std::string::npos;
       at = out.find(kRank, at + number.size()))
    out.replace(at, kRank.size(), number);
  return out;
}

Status check_output_pattern(const std::string& pattern, int64_t world) {
  if (world <= 1 || pattern.find("{rank}") != std::string::npos) return {};
  return Status::failure(
      fmt::format("'{}' is one file for {} ranks, which would overwrite each other: put '{{rank}}' "
                  "into the name",
                  pattern, world));
}

}  // namespace maco::reference
