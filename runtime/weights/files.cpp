#include "runtime/weights/files.h"

#include <fmt/format.h>

#include <filesystem>

namespace maco::runtime {
namespace {

Status status_of(std::string why) {
  return why.empty() ? Status{} : Status::failure(std::move(why));
}

// In what a file's description of a source differs from the map, or "".
std::string difference(const WeightSource& source, const ir::SafetensorsFile& file) {
  const ir::SafetensorsEntry* entry = file.find(source.name);
  if (!entry) return fmt::format("has no tensor '{}'", source.name);
  const auto text = [](std::string_view dtype, const std::vector<int64_t>& shape, uint64_t begin) {
    return fmt::format("{}[{}] at byte {}", dtype, fmt::join(shape, ","), begin);
  };
  const std::string found = text(entry->dtype, entry->shape, file.data_begin() + entry->begin);
  const std::string told =
      text(ir::safetensors_name(source.dtype), source.shape, static_cast<uint64_t>(source.begin));
  if (found == told) return "";
  return fmt::format("has '{}' as {}, not as {}", source.name, found, told);
}

}  // namespace

Status WeightFiles::open_file(const WeightFile& file, const std::string& folder,
                              ir::SafetensorsFile& to) {
  const std::string path = (std::filesystem::path(folder) / file.name).string();
  if (const std::string why = to.open(path); !why.empty()) return Status::failure(why);
  if (to.bytes() == static_cast<uint64_t>(file.bytes)) return {};
  return Status::failure(
      fmt::format("{}: has {} bytes, but the model was imported from one with {}: import it again",
                  path, to.bytes(), file.bytes));
}

Status WeightFiles::open(const WeightMap& map, const std::string& folder,
                         const std::vector<size_t>& sources) {
  files_.resize(map.files.size());
  for (const size_t s : sources) {
    const WeightSource& source = map.sources[s];
    auto& file = files_[source.file];
    if (!file) {
      file = std::make_unique<ir::SafetensorsFile>();
      MACO_TRY(open_file(map.files[source.file], folder, *file));
    }
    if (const std::string why = difference(source, *file); !why.empty())
      return Status::failure(fmt::format("{}: {}: import the model again", file->path(), why));
  }
  return {};
}

Status WeightFiles::read(const WeightSource& source, int64_t offset, void* to, size_t bytes) const {
  return status_of(
      files_[source.file]->read(static_cast<uint64_t>(source.begin + offset), to, bytes));
}

}  // namespace maco::runtime
