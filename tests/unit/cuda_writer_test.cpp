// Tensors on GPUs filled by several threads, with a driver that has none (tests/api/fake_driver)
// and copies as late as may be: what is filled again too soon, or not waited for, shows.
#include "runtime/host/cuda_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/host/cuda_rank.h"
#include "runtime/host/driver.h"
#include "runtime/weights/load.h"
#include "tests/catch.h"
#include "tests/paths.h"
#include "tests/unit/weights_files.h"

namespace maco::runtime {
namespace {

using nlohmann::json;

// Two ranks on a GPU each, with memory and nothing to run.
class Ranks final : public Session {
 public:
  explicit Ranks(ir::Manifest manifest) : manifest_(std::move(manifest)) {
    ::setenv("FAKE_LATE_COPIES", "1", 1);
    Status status;
    driver_ = cuda::Driver::load(status, test::binary_path("tests/fake_driver/libcuda.so.1"));
    REQUIRE(status.message == "");
    for (int r = 0; r < 2; ++r) {
      ranks_.push_back(std::make_unique<CudaRank>(*driver_, manifest_, options_, r,
                                                  driver_->devices()[static_cast<size_t>(r)], 1));
      REQUIRE(ranks_.back()->open().message == "");
      REQUIRE(ranks_.back()->allocate().message == "");
    }
  }
  ~Ranks() override {
    ranks_.clear();
    ::unsetenv("FAKE_LATE_COPIES");
  }
  /// That memory is the host's.
  const std::byte* memory(int rank, size_t tensor) const {
    return reinterpret_cast<const std::byte*>(ranks_[static_cast<size_t>(rank)]->tensor(tensor));
  }

  const ir::Manifest& manifest() const override { return manifest_; }
  Status allocate(int, size_t) override { return {}; }
  void* address(int rank, size_t tensor) const override {
    return const_cast<std::byte*>(memory(rank, tensor));
  }
  std::unique_ptr<TensorWriter> make_writer(size_t staging, Status& status) override {
    auto writer = std::make_unique<CudaWriter>(*driver_, 0);
    for (const auto& rank : ranks_)
      if (status) status = writer->add(*rank);
    if (status) status = writer->allocate(staging);
    return writer;
  }
  Status bind(int, size_t, void*) override { return none(); }
  Status write_at(int, size_t, size_t, const void*, size_t) override { return none(); }
  Status read_at(int, size_t, size_t, void*, size_t) override { return none(); }
  Status launch(const LaunchValues&) override { return none(); }
  Status enqueue(const LaunchValues&, const LaunchAddresses&, std::span<void* const>,
                 TensorPlaces) override {
    return none();
  }
  Status wait() override { return none(); }
  Status ended(bool&) override { return none(); }
  void stop() override {}
  Status bench(const LaunchValues&, int, double&) override { return none(); }
  Status stamps(std::vector<RankStamps>&) override { return none(); }

 private:
  static Status none() { return Status::failure("there is nothing to run"); }

  const ir::Manifest manifest_;
  const SessionOptions options_;
  std::unique_ptr<cuda::Driver> driver_;
  std::vector<std::unique_ptr<CudaRank>> ranks_;
};

ir::Manifest manifest_of(const std::vector<std::pair<std::string, int64_t>>& params) {
  ir::Manifest m;
  m.name = "writer";
  m.world = 2;
  m.target = "sm_90a";
  m.ctas = 1;
  for (const auto& [name, rows] : params) {
    ir::ManifestTensor& t = m.tensors.emplace_back();
    t.name = name;
    t.kind = "param";
    t.dtype = ir::DType::F32;
    t.shape = {ir::Expr(rows), ir::Expr(int64_t{10})};
    t.max_elements = rows * 10;
  }
  return m;
}

TEST_CASE("a buffer is given again when what was copied from it has ended", "[weights]") {
  Ranks ranks(manifest_of({{"a", 10}}));
  Status status;
  const auto writer = ranks.make_writer(40, status);
  REQUIRE(status.message == "");
  for (int row = 0; row < 10; ++row)
    for (int rank = 0; rank < 2; ++rank) {
      std::byte* memory = nullptr;
      REQUIRE(writer->staging(memory));
      std::memset(memory, 1 + 2 * row + rank, 40);
      REQUIRE(writer->write(rank, 0, static_cast<size_t>(row) * 40, memory, 40));
    }
  REQUIRE(writer->finish());
  for (int row = 0; row < 10; ++row)
    for (int rank = 0; rank < 2; ++rank) {
      const std::byte* const at = ranks.memory(rank, 0) + row * 40;
      CHECK(std::count(at, at + 40, static_cast<std::byte>(1 + 2 * row + rank)) == 40);
    }
}

TEST_CASE("params of all ranks come through the buffers of several threads", "[weights]") {
  const test::CheckpointFolder folder;
  json text = test::empty_map(2);
  std::vector<std::byte> bytes(size_t{2000} * 40);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 % 241);
  test::write_checkpoint_file(folder, "a.safetensors", {{"t", ir::DType::F32, {2000, 10}, bytes}},
                              1, text);
  const auto rows = [](int64_t begin, int64_t end) {
    return json{{{"from", "t"}, {"rows", {begin, end}}}};
  };
  text["params"]["same"] = {{"dtype", "f32"}, {"shape", {900, 10}}, {"parts", rows(5, 905)}};
  text["params"]["own"] = {
      {"dtype", "f32"}, {"shape", {1000, 10}}, {"ranks", {rows(0, 1000), rows(1000, 2000)}}};
  const auto [map, error] = parse_weights(text.dump());
  REQUIRE(error == "");
  Ranks ranks(manifest_of({{"own", 1000}, {"same", 900}}));
  REQUIRE(check_weights(*map, 2, params_of(ranks.manifest())).message == "");
  WeightFiles files;
  REQUIRE(files.open(*map, folder.path.string(), {0}));
  LoadOptions options;
  options.threads = 3;
  options.slice_bytes = 400;
  REQUIRE(load_weights(ranks, *map, files, targets_of(*map, ranks), options).message == "");
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(std::memcmp(ranks.memory(rank, 0), bytes.data() + rank * 40000, 40000) == 0);
    CHECK(std::memcmp(ranks.memory(rank, 1), bytes.data() + 5 * 40, size_t{900} * 40) == 0);
  }
}

}  // namespace
}  // namespace maco::runtime
