// A checkpoint of one file, for tests of Session::load: 'w' of bf16[512, 128]; tests compare its
// bits.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace maco::test {

class Checkpoint {
 public:
  static constexpr size_t kRows = 512, kCols = 128;

  Checkpoint() : bits_(kRows * kCols) {
    std::filesystem::create_directories(path_);
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] = static_cast<uint16_t>(i % 30000);
    const std::string header =
        R"({"w":{"dtype":"BF16","shape":[512,128],"data_offsets":[0,131072]}})";
    std::string all(8, '\0');
    all[0] = static_cast<char>(header.size());
    all += header;
    begin_ = all.size();
    all.append(reinterpret_cast<const char*>(bits_.data()), 2 * bits_.size());
    bytes_ = all.size();
    std::ofstream(file(), std::ios::binary) << all;
  }
  ~Checkpoint() { std::filesystem::remove_all(path_); }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  std::string folder() const { return path_.string(); }
  std::string file() const { return (path_ / "model.safetensors").string(); }
  const uint16_t* row(size_t r) const { return bits_.data() + r * kCols; }
  /// weights.json for two ranks with one param, `what` being its members behind "dtype".
  std::string weights(const std::string& param, const std::string& what) const {
    return R"({"maco_weights": 1, "world": 2, "files": [{"name": "model.safetensors", "bytes": )" +
           std::to_string(bytes_) +
           R"(}], "sources": {"w": {"file": 0, "dtype": "BF16", "shape": [512, 128], "begin": )" +
           std::to_string(begin_) + R"(}}, "params": {")" + param + R"(": {"dtype": "bf16", )" +
           what + "}}}";
  }
  /// weights.json in which each rank has half of the rows.
  std::string halves(const std::string& param) const {
    return weights(param, R"("shape": [256, 128], "ranks": [[{"from": "w", "rows": [0, 256]}],
                             [{"from": "w", "rows": [256, 512]}]])");
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("maco_api_weights_" + std::to_string(getpid()));
  std::vector<uint16_t> bits_;
  size_t begin_ = 0, bytes_ = 0;
};

}  // namespace maco::test
