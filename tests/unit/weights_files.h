// Checkpoints for tests: safetensors files in a folder of their own, and the map of their tensors.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ir/safetensors.h"

namespace maco::test {

/// A folder that is there as long as the object.
struct CheckpointFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("maco_weights_" + std::to_string(getpid()));
  CheckpointFolder() { std::filesystem::create_directories(path); }
  ~CheckpointFolder() { std::filesystem::remove_all(path); }
};

struct CheckpointTensor {
  std::string name;
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

/// Writes a file, with `blanks` blanks behind its header, and adds it and its tensors to `map`, the
/// JSON of weights.json.
inline void write_checkpoint_file(const CheckpointFolder& folder, const std::string& name,
                                  const std::vector<CheckpointTensor>& tensors, size_t blanks,
                                  nlohmann::json& map) {
  nlohmann::json header = nlohmann::json::object();
  size_t at = 0;
  for (const CheckpointTensor& t : tensors) {
    header[t.name] = {{"dtype", ir::safetensors_name(t.dtype)},
                      {"shape", t.shape},
                      {"data_offsets", {at, at + t.bytes.size()}}};
    at += t.bytes.size();
  }
  const std::string text = header.dump() + std::string(blanks, ' ');
  std::string all(8, '\0');
  for (size_t i = 0; i < 8; ++i) all[i] = static_cast<char>(text.size() >> (8 * i) & 255);
  all += text;
  size_t begin = all.size();
  for (const CheckpointTensor& t : tensors) {
    map["sources"][t.name] = {{"file", map["files"].size()},
                              {"dtype", ir::safetensors_name(t.dtype)},
                              {"shape", t.shape},
                              {"begin", begin}};
    begin += t.bytes.size();
    all.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  }
  std::ofstream(folder.path / name, std::ios::binary) << all;
  map["files"].push_back({{"name", name}, {"bytes", all.size()}});
}

/// A map without files and params.
inline nlohmann::json empty_map(int64_t world) {
  return {{"maco_weights", 1},
          {"world", world},
          {"files", nlohmann::json::array()},
          {"sources", nlohmann::json::object()},
          {"params", nlohmann::json::object()}};
}

}  // namespace maco::test
