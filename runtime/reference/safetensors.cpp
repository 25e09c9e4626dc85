#include "runtime/reference/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace maco::reference {

using runtime::Status;

namespace {

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

}  // namespace

Status SafetensorsFile::open(const std::string& path) {
  std::string why = file_.open(path);
  return why.empty() ? Status{} : Status::failure(std::move(why));
}

Status SafetensorsFile::read(const SafetensorsEntry& entry, Tensor& tensor) const {
  const auto type = dtype_from_safetensors(entry.dtype);
  if (!type)
    return Status::failure(fmt::format("{}: tensor '{}' is {}, which MACO has no type for",
                                       file_.path(), entry.name, entry.dtype));
  tensor = Tensor(*type, entry.shape);
  std::string why =
      file_.read(file_.data_begin() + entry.begin, tensor.bytes.data(), tensor.bytes.size());
  return why.empty() ? Status{} : Status::failure(std::move(why));
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
  // Appended to a list without a search for each, as no two tensors have one name.
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
