#include "compiler/frontend/huggingface/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ir/safetensors.h"

namespace maco::frontend::huggingface {

namespace {

namespace fs = std::filesystem;
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr uintmax_t kMostJson = 256 << 20;

bool has_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string read_text(const fs::path& path, std::string& text) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return fmt::format("{}: can't be read: {}", path.string(), error.message());
  if (size > kMostJson)
    return fmt::format("{}: has {} bytes, which is no JSON of a checkpoint", path.string(), size);
  std::ifstream in(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(in), {});
  return in.bad() || text.size() != size ? fmt::format("{}: can't be read", path.string()) : "";
}

// Whether a file name from an index stays within the folder.
bool stays(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

class Reader {
 public:
  Reader(const fs::path& folder, Checkpoint& checkpoint)
      : folder_(folder), checkpoint_(checkpoint) {}

  std::string run() {
    std::error_code error;
    if (!fs::is_directory(folder_, error)) return fmt::format("{}: is no folder", folder_.string());
    if (!has_file(folder_ / "config.json"))
      return fmt::format(
          "{}: has no config.json; a checkpoint is a folder of Hugging Face's, with config.json "
          "and safetensors",
          folder_.string());
    std::string wrong = read_text(folder_ / "config.json", checkpoint_.config);
    if (wrong.empty() && has_file(folder_ / "generation_config.json"))
      wrong = read_text(folder_ / "generation_config.json", checkpoint_.generation);
    if (!wrong.empty()) return wrong;
    if (has_file(folder_ / kIndex)) return from_index();
    if (has_file(folder_ / "model.safetensors")) return take("model.safetensors", {});
    return only_file();
  }

 private:
  // The file of a checkpoint of one file, whatever its name.
  std::string only_file() {
    std::vector<std::string> names;
    bool pickled = false;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".safetensors") names.push_back(entry.path().filename().string());
      pickled = pickled || extension == ".bin" || extension == ".pt" || extension == ".pth";
    }
    if (names.size() == 1) return take(names[0], {});
    if (!names.empty())
      return fmt::format("{}: has {} files of tensors, and neither model.safetensors nor {}",
                         folder_.string(), names.size(), kIndex);
    return fmt::format("{}: has no safetensors{}", folder_.string(),
                       pickled ? "; its weights are pickled: load and save them again with "
                                 "transformers' save_pretrained"
                               : "");
  }

  std::string from_index() {
    std::string text;
    if (std::string wrong = read_text(folder_ / kIndex, text); !wrong.empty()) return wrong;
    const auto index = nlohmann::json::parse(text, nullptr, false);
    const auto bad = [&](const std::string& why) {
      return fmt::format("{}: {}", (folder_ / kIndex).string(), why);
    };
    if (index.is_discarded() || !index.is_object() || !index.contains("weight_map") ||
        !index["weight_map"].is_object())
      return bad("has no object 'weight_map'");
    std::map<std::string, std::vector<std::string>> by_file;
    for (const auto& [tensor, file] : index["weight_map"].items()) {
      if (!file.is_string()) return bad(fmt::format("'{}' isn't in a file", tensor));
      if (!stays(file.get_ref<const std::string&>()))
        return bad(fmt::format("'{}' is in '{}', which isn't in the folder itself", tensor,
                               file.get<std::string>()));
      by_file[file.get<std::string>()].push_back(tensor);
    }
    if (by_file.empty()) return bad("names no tensors");
    for (const auto& [file, tensors] : by_file)
      if (std::string wrong = take(file, tensors); !wrong.empty()) return wrong;
    return "";
  }

  // Adds all tensors of a file. If there is an index, they must be those that it assigns to the
  // file.
  std::string take(const std::string& name, std::vector<std::string> expected) {
    ir::SafetensorsFile file;
    if (std::string wrong = file.open((folder_ / name).string()); !wrong.empty()) return wrong;
    for (const std::string& tensor : expected)
      if (file.find(tensor) == nullptr)
        return fmt::format("{}: has no tensor '{}', which {} puts there", file.path(), tensor,
                           kIndex);
    std::sort(expected.begin(), expected.end());
    for (const ir::SafetensorsEntry& e : file.entries()) {
      if (!expected.empty() && !std::binary_search(expected.begin(), expected.end(), e.name))
        return fmt::format("{}: has a tensor '{}', which {} doesn't put there", file.path(), e.name,
                           kIndex);
      checkpoint_.sources[e.name] = {.dtype = e.dtype,
                                     .shape = e.shape,
                                     .file = checkpoint_.files.size(),
                                     .begin = file.data_begin() + e.begin};
    }
    checkpoint_.files.emplace_back(name, file.bytes());
    return "";
  }

  fs::path folder_;
  Checkpoint& checkpoint_;
};

}  // namespace

std::string read_checkpoint(const std::string& folder, Checkpoint& checkpoint) {
  return Reader(folder, checkpoint).run();
}

}  // namespace maco::frontend::huggingface
