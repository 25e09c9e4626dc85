// Params filled from files: against a plain copy element by element, and from files that are wrong.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/reference/numbers.h"
#include "runtime/weights/load.h"
#include "tests/catch.h"
#include "tests/unit/address_limit.h"
#include "tests/unit/weights_files.h"

namespace maco::runtime {
namespace {

using nlohmann::json;
using test::CheckpointFolder;
using test::CheckpointTensor;
using test::Contains;

constexpr ir::DType kTypes[] = {ir::DType::F32, ir::DType::F16, ir::DType::BF16};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t in(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }
  bool once_in(int64_t n) { return in(1, n) == 1; }
  ir::DType type() { return kTypes[in(0, 2)]; }

  CheckpointTensor tensor(const std::string& name, std::vector<int64_t> shape) {
    CheckpointTensor t{name, type(), std::move(shape), {}};
    int64_t n = 1;
    for (const int64_t extent : t.shape) n *= extent;
    t.bytes.resize(static_cast<size_t>(n * ir::size_of(t.dtype)));
    for (int64_t i = 0; i < n; ++i)
      reference::encode(t.dtype, static_cast<double>(in(-4000, 4000)) / 64,
                        t.bytes.data() + i * ir::size_of(t.dtype));
    return t;
  }

 private:
  std::mt19937 engine_;
};

// Files of random tensors, and params of random boxes of them.
struct Case {
  CheckpointFolder folder;
  json text;
  std::map<std::string, CheckpointTensor> tensors;

  Case(Random& random, int64_t world) : text(test::empty_map(world)) {
    for (int f = 0; f < 3; ++f) {
      std::vector<CheckpointTensor> all;
      for (int i = 0; i < 3; ++i) {
        const int64_t rows = random.in(1, 40), cols = random.in(1, 40);
        std::vector<int64_t> shape = {rows, cols};
        if (random.once_in(4)) shape = {rows};
        if (random.once_in(4)) shape = {rows, 2, cols};
        all.push_back(random.tensor("t" + std::to_string(3 * f + i), shape));
      }
      all.push_back({"none" + std::to_string(f), ir::DType::F16, {0, 3}, {}});
      for (const CheckpointTensor& t : all) tensors[t.name] = t;
      test::write_checkpoint_file(folder, "f" + std::to_string(f) + ".safetensors", all,
                                  static_cast<size_t>(random.in(0, 9)), text);
    }
    for (int p = 0; p < 8; ++p) {
      const int64_t rows = random.in(1, 50), cols = random.in(1, 50);
      json param = {{"dtype", ir::name(random.type())}, {"shape", {rows, cols}}};
      if (random.once_in(8)) {
        for (int64_t i = 0; i < rows * cols; ++i)
          param["values"].push_back(static_cast<double>(random.in(-99, 99)) / 8);
      } else if (random.once_in(3)) {
        param["parts"] = parts(random, rows, cols);
      } else if (random.once_in(2)) {
        param["ranks"] = columns(random, world, rows, cols);
      } else {
        for (int64_t r = 0; r < world; ++r) param["ranks"].push_back(parts(random, rows, cols));
      }
      text["params"]["p" + std::to_string(p)] = std::move(param);
    }
  }

  int64_t rows_of(const std::string& name) const { return tensors.at(name).shape[0]; }
  int64_t cols_of(const std::string& name) const {
    const auto& shape = tensors.at(name).shape;
    return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
  }

  // A box of a random tensor of at most this size.
  json part(Random& random, int64_t most_rows, int64_t most_cols, int64_t& high,
            int64_t& wide) const {
    const std::string from = "t" + std::to_string(random.in(0, 8));
    const bool turned = random.once_in(4);
    const int64_t rows = std::min(rows_of(from), turned ? most_cols : most_rows);
    const int64_t cols = std::min(cols_of(from), turned ? most_rows : most_cols);
    json box = {{"from", from}};
    const int64_t row = random.in(0, rows_of(from) - rows),
                  col = random.in(0, cols_of(from) - cols);
    if (rows < rows_of(from) || random.once_in(2)) box["rows"] = {row, row + rows};
    if (cols < cols_of(from) || random.once_in(2)) box["columns"] = {col, col + cols};
    if (turned) box["transpose"] = true;
    if (random.once_in(4)) box["plus"] = random.once_in(2) ? 1.0 : -0.375;
    high = turned ? cols : rows;
    wide = turned ? rows : cols;
    return box;
  }
  // Boxes beside and below each other, with gaps.
  json parts(Random& random, int64_t rows, int64_t cols) const {
    json list = json::array();
    for (int64_t row = random.in(0, 2); row < rows;) {
      int64_t deepest = 1;
      for (int64_t col = random.in(0, 2); col < cols;) {
        int64_t high = 0, wide = 0;
        json box = part(random, rows - row, cols - col, high, wide);
        if (row > 0 || col > 0 || random.once_in(2)) box["to"] = {row, col};
        list.push_back(std::move(box));
        deepest = std::max(deepest, high);
        col += wide + random.in(0, 2);
      }
      row += deepest + random.in(0, 1);
    }
    return list;
  }
  // The same rows of one tensor on all ranks, each with columns of its own; some have them twice.
  json columns(Random& random, int64_t world, int64_t rows, int64_t cols) const {
    json ranks = json::array();
    const std::string from = "t" + std::to_string(random.in(0, 8));
    const int64_t each = std::min(cols, std::max<int64_t>(1, cols_of(from) / world));
    const int64_t count = std::min(rows, rows_of(from));
    for (int64_t r = 0; r < world; ++r) {
      const int64_t col = std::min(r * each, cols_of(from) - each);
      ranks.push_back({{{"from", from}, {"rows", {0, count}}, {"columns", {col, col + each}}}});
    }
    return ranks;
  }

  // What the param must be on a rank, element by element.
  std::vector<std::byte> expected(const WeightMap& map, const WeightParam& p, int rank) const {
    const int64_t size = ir::size_of(p.dtype);
    std::vector<std::byte> bytes(static_cast<size_t>(p.rows * p.cols * size));
    for (size_t i = 0; i < p.values.size(); ++i)
      reference::encode(p.dtype, double{p.values[i]},
                        bytes.data() + static_cast<int64_t>(i) * size);
    for (const WeightPart& part : p.parts_of(rank)) {
      const CheckpointTensor& t = tensors.at(map.sources[part.source].name);
      const int64_t cols = cols_of(t.name);
      for (int64_t r = 0; r < part.rows; ++r)
        for (int64_t c = 0; c < part.cols; ++c) {
          const int64_t to = (part.to_row + (part.transpose ? c : r)) * p.cols + part.to_col +
                             (part.transpose ? r : c);
          auto value = static_cast<float>(reference::decode(
              t.dtype,
              t.bytes.data() + ((part.row + r) * cols + part.col + c) * ir::size_of(t.dtype)));
          if (part.plus) value += *part.plus;
          reference::encode(p.dtype, double{value}, bytes.data() + to * size);
        }
    }
    return bytes;
  }
};

// All params of some ranks, in memory that was anything.
struct Memory {
  std::vector<WeightTarget> targets;
  std::map<std::pair<std::string, int>, std::vector<std::byte>> bytes;

  Memory(const WeightMap& map, int first, int count) {
    for (const WeightParam& p : map.params) {
      WeightTarget& target = targets.emplace_back();
      target.param = &p;
      for (int rank = first; rank < first + count; ++rank) {
        auto& all = bytes[{p.name, rank}];
        all.assign(static_cast<size_t>(p.rows * p.cols * ir::size_of(p.dtype)), std::byte{0x5a});
        target.places.push_back({rank, 0, all.data()});
      }
    }
  }
};

void check_case(const Case& c, const WeightMap& map, int first, int count,
                const LoadOptions& options) {
  Memory memory(map, first, count);
  WeightFiles files;
  REQUIRE(files.open(map, c.folder.path.string(), sources_of(memory.targets)).message == "");
  REQUIRE(read_weights(map, files, memory.targets, options).message == "");
  for (const WeightParam& p : map.params)
    for (int rank = first; rank < first + count; ++rank) {
      INFO(p.name << " on rank " << rank << ": " << c.text["params"][p.name].dump());
      REQUIRE(memory.bytes.at({p.name, rank}) == c.expected(map, p, rank));
    }
}

TEST_CASE("params are filled as a copy element by element fills them", "[weights]") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const auto world = static_cast<int>(random.in(1, 3));
    const Case c(random, world);
    const auto [map, error] = parse_weights(c.text.dump());
    REQUIRE(error == "");
    LoadOptions options;
    options.threads = static_cast<int>(random.in(0, 3));
    // From an element to all at once.
    options.slice_bytes = static_cast<size_t>(int64_t{1} << random.in(2, 16));
    check_case(c, *map, 0, world, options);
    check_case(c, *map, world - 1, 1, options);
  }
}

// Rows that are long enough to be read by themselves.
TEST_CASE("long rows are read to where they go, short ones through a buffer", "[weights]") {
  const CheckpointFolder folder;
  json text = test::empty_map(2);
  std::vector<std::byte> bytes(size_t{4} * 3 * 20000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  const std::vector<CheckpointTensor> tensors = {{"w", ir::DType::F32, {3, 20000}, bytes}};
  test::write_checkpoint_file(folder, "w.safetensors", tensors, 3, text);
  const auto cut = [](int64_t begin, int64_t end) {
    return json{{{"from", "w"}, {"columns", {begin, end}}}};
  };
  text["params"]["long"] = {
      {"dtype", "f32"}, {"shape", {3, 10000}}, {"ranks", {cut(0, 10000), cut(10000, 20000)}}};
  text["params"]["short"] = {
      {"dtype", "f32"}, {"shape", {3, 100}}, {"ranks", {cut(50, 150), cut(19900, 20000)}}};
  const auto map = *parse_weights(text.dump()).map;
  Memory memory(map, 0, 2);
  WeightFiles files;
  REQUIRE(files.open(map, folder.path.string(), {0}));
  std::vector<std::pair<int64_t, int64_t>> told;
  LoadOptions options;
  options.progress = [&](int64_t done, int64_t total) { told.emplace_back(done, total); };
  REQUIRE(read_weights(map, files, memory.targets, options).message == "");
  const int64_t all = 4 * 3 * (20000 + 200);
  REQUIRE_FALSE(told.empty());
  CHECK(told.back() == std::pair(all, all));
  for (const auto& [name, width, begin0, begin1] :
       {std::tuple<const char*, size_t, size_t, size_t>{"long", 10000, 0, 10000},
        {"short", 100, 50, 19900}})
    for (int rank = 0; rank < 2; ++rank)
      for (size_t row = 0; row < 3; ++row)
        CHECK(std::memcmp(memory.bytes.at({name, rank}).data() + 4 * row * width,
                          bytes.data() + 4 * (row * 20000 + (rank == 0 ? begin0 : begin1)),
                          4 * width) == 0);
}

struct Simple {
  CheckpointFolder folder;
  json text = test::empty_map(1);
  std::optional<WeightMap> map;

  explicit Simple(int64_t rows = 1000) {
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * 40, std::byte{1});
    test::write_checkpoint_file(folder, "a.safetensors", {{"t", ir::DType::F32, {rows, 10}, bytes}},
                                1, text);
    test::write_checkpoint_file(folder, "b.safetensors",
                                {{"u", ir::DType::F32, {2}, {bytes.begin(), bytes.begin() + 8}}}, 1,
                                text);
    text["params"]["p"] = {{"dtype", "f32"}, {"shape", {rows, 10}}, {"parts", {{{"from", "t"}}}}};
    map = parse_weights(text.dump()).map;
  }
  std::string file() const { return (folder.path / "a.safetensors").string(); }
  std::string open() const {
    WeightFiles files;
    return files.open(*map, folder.path.string(), {0}).message;
  }
};

TEST_CASE("files that aren't what weights.json says are told by name", "[weights]") {
  const Simple right;
  CHECK(right.open() == "");
  // One that no source is taken from may be missing.
  std::filesystem::remove(right.folder.path / "b.safetensors");
  CHECK(right.open() == "");
  const auto of = [](const std::function<void(const Simple&)>& damage) {
    const Simple s;
    damage(s);
    const std::string error = s.open();
    CHECK_THAT(error, Contains(s.file() + ": "));
    return error;
  };
  CHECK_THAT(of([](const Simple& s) { std::filesystem::remove(s.file()); }),
             Contains("cannot be opened: No such file"));
  CHECK_THAT(of([](const Simple& s) { std::filesystem::resize_file(s.file(), 39000); }),
             Contains("is cut off: tensor 't' ends at byte 40000"));
  CHECK_THAT(of([](const Simple& s) { std::filesystem::resize_file(s.file(), 5); }),
             Contains("it has no header"));
  CHECK_THAT(of([](const Simple& s) { std::filesystem::resize_file(s.file(), 50000); }),
             Contains("bytes after the last tensor"));
  CHECK_THAT(of([](const Simple& s) { std::ofstream(s.file()) << "version https://git-lfs"; }),
             Contains("is a pointer of Git LFS"));
  const auto instead = [](const CheckpointTensor& tensor, size_t blanks) {
    return [=](const Simple& s) {
      json ignored = test::empty_map(1);
      test::write_checkpoint_file(s.folder, "a.safetensors", {tensor}, blanks, ignored);
    };
  };
  const std::vector<std::byte> bytes(40000);
  CHECK_THAT(of(instead({"t", ir::DType::F32, {1000, 10}, bytes}, 5)),
             Contains("but the model was imported from one with"));
  CHECK_THAT(of(instead({"v", ir::DType::F32, {1000, 10}, bytes}, 1)),
             Contains("has no tensor 't': import the model again"));
  CHECK_THAT(
      of(instead({"t", ir::DType::F32, {10, 1000}, bytes}, 1)),
      Contains("has 't' as F32[10,1000] at byte") && Contains("not as F32[1000,10] at byte"));
  CHECK_THAT(of(instead({"t", ir::DType::I32, {1000, 10}, bytes}, 1)),
             Contains("has 't' as I32[1000,10]"));
}

TEST_CASE("a file that is cut off while it is read ends all threads", "[weights]") {
  const Simple s(100000);
  Memory memory(*s.map, 0, 1);
  WeightFiles files;
  REQUIRE(files.open(*s.map, s.folder.path.string(), {0}));
  std::filesystem::resize_file(s.file(), 2000);
  LoadOptions options;
  options.slice_bytes = 4096;
  options.threads = 4;
  CHECK(read_weights(*s.map, files, memory.targets, options).message ==
        s.file() + ": was cut off while it was read");
}

TEST_CASE("loading is stopped, or ends with what its caller throws", "[weights]") {
  const Simple s(100000);
  Memory memory(*s.map, 0, 1);
  WeightFiles files;
  REQUIRE(files.open(*s.map, s.folder.path.string(), {0}));
  std::atomic<bool> stop{true};
  LoadOptions options;
  options.stop = &stop;
  CHECK(read_weights(*s.map, files, memory.targets, options).message == kLoadStopped);
  stop = false;
  options.progress = [](int64_t, int64_t) { throw std::runtime_error("mine"); };
  CHECK_THROWS_WITH(read_weights(*s.map, files, memory.targets, options), "mine");
}

TEST_CASE("where the system gives fewer threads, these do all", "[weights]") {
  if (!test::can_limit()) return;
  const Simple s;
  Memory memory(*s.map, 0, 1);
  WeightFiles files;
  REQUIRE(files.open(*s.map, s.folder.path.string(), {0}));
  LoadOptions options;
  options.threads = 500;
  options.slice_bytes = 40;
  Status status;
  {
    const test::AddressLimit limit(size_t{64} << 20);
    status = read_weights(*s.map, files, memory.targets, options);
  }
  CHECK(status.message == "");
  const auto& bytes = memory.bytes.at({"p", 0});
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{1}) == 40000);
}

}  // namespace
}  // namespace maco::runtime
