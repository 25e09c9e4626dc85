#include "runtime/reference/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/catch.h"

using namespace maco;
using namespace maco::reference;
using test::Contains;

namespace {

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("maco_safetensors_" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  /// A file with this header and `data` bytes of data.
  std::string raw(const std::string& header, size_t data) const {
    std::string text(8, '\0');
    for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 255);
    return bytes(text + header + std::string(data, '\1'));
  }
  std::string bytes(const std::string& all) const {
    const std::string name = file("raw.safetensors");
    std::ofstream(name, std::ios::binary) << all;
    return name;
  }
};

std::string open_error(const std::string& path) {
  SafetensorsFile f;
  const auto s = f.open(path);
  return s.ok ? "" : s.message;
}

}  // namespace

TEST_CASE("a file of many tensors is written, and each is found", "[safetensors]") {
  Folder folder;
  const std::string name = folder.file("many.safetensors");
  const Tensor one = Tensor::of(ir::DType::F32, {1}, {1});
  std::vector<std::pair<std::string, const Tensor*>> named;
  for (size_t i = 0; i < 50000; ++i) named.emplace_back("t" + std::to_string(i), &one);
  REQUIRE(write_safetensors(name, named).ok);
  SafetensorsFile f;
  REQUIRE(f.open(name).message == "");
  const bool all = std::all_of(named.begin(), named.end(), [&](const auto& n) {
    const SafetensorsEntry* e = f.find(n.first);
    return e && e->name == n.first;
  });
  CHECK(all);
  CHECK(!f.find("t50000"));
}

TEST_CASE("what is written is read back", "[safetensors]") {
  Folder folder;
  const std::string name = folder.file("a.safetensors");
  std::vector<Tensor> tensors;
  for (ir::DType t : ir::kAllDTypes)
    tensors.push_back(Tensor::of(t, {2, 3}, {1, 2, 0.5, 4, 100, 0}));
  tensors.push_back(Tensor::of(ir::DType::BF16, {1, 2, 1, 2}, {1, 2, 3, 4}));
  std::vector<std::pair<std::string, const Tensor*>> named;
  for (size_t i = 0; i < tensors.size(); ++i)
    named.emplace_back("layers." + std::to_string(i) + ".w", &tensors[i]);
  REQUIRE(write_safetensors(name, named).ok);
  SafetensorsFile f;
  REQUIRE(f.open(name).message == "");
  CHECK(f.entries().size() == tensors.size());
  for (const auto& [key, tensor] : named) {
    Tensor back;
    REQUIRE(f.find(key));
    REQUIRE(f.read(*f.find(key), back).ok);
    CHECK(back == *tensor);
  }
  CHECK(f.find("layers.9.w") == nullptr);
  // no temporary file is left
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a file that can't be written leaves nothing", "[safetensors]") {
  Folder folder;
  const Tensor t(ir::DType::F32, {1});
  const auto s = write_safetensors(folder.file("no/such/folder.safetensors"), {{"t", &t}});
  CHECK_FALSE(s.ok);
  std::filesystem::create_directories(folder.file("busy/inside"));
  CHECK_FALSE(write_safetensors(folder.file("busy"), {{"t", &t}}).ok);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("dtypes that MACO lacks are told only when asked for", "[safetensors]") {
  Folder folder;
  SafetensorsFile f;
  REQUIRE(
      f
          .open(folder.raw(
              R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},
                                "b":{"dtype":"U8","shape":[],"data_offsets":[16,17]}}   )",
              17))
          .message == "");
  Tensor t;
  CHECK_THAT(f.read(*f.find("a"), t).message, Contains("tensor 'a' is I64"));
  CHECK(f.read(*f.find("b"), t).ok);
  CHECK(t.elements() == 1);
}

TEST_CASE("files that are wrong are refused with the reason", "[safetensors]") {
  Folder folder;
  const auto entry = [](const std::string& name, const std::string& shape, int begin, int end) {
    return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + ",\"data_offsets\":[" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  CHECK_THAT(open_error(folder.file("none")), Contains("cannot be opened"));
  CHECK_THAT(open_error(folder.path.string()), Contains("is not a file"));
  CHECK_THAT(open_error(folder.bytes("short")), Contains("it has no header"));
  CHECK_THAT(open_error(folder.bytes(std::string(8, '\xff') + "{}")),
             Contains("is no safetensors file"));
  CHECK_THAT(open_error(folder.bytes(std::string("\x40\0\0\0\0\0\0\0{}", 10))),
             Contains("is cut off"));
  CHECK_THAT(open_error(folder.raw("[1]", 0)), Contains("no JSON object"));
  CHECK_THAT(open_error(folder.raw("{\"a\":", 0)), Contains("no JSON object"));
  CHECK_THAT(open_error(folder.raw("{\"a\":1}", 0)), Contains("tensor 'a': it must have"));
  CHECK_THAT(open_error(folder.raw("{" + entry("a", "[2]", 0, 8) + "}", 4)),
             Contains("is cut off: tensor 'a'"));
  CHECK_THAT(open_error(folder.raw("{" + entry("a", "[2]", 0, 8) + "}", 9)),
             Contains("1 bytes after the last"));
  CHECK_THAT(open_error(folder.raw("{" + entry("a", "[2]", 0, 12) + "}", 12)),
             Contains("F32[2] takes 8 bytes, and it has 12"));
  CHECK_THAT(open_error(folder.raw("{" + entry("a", "[-2]", 0, 8) + "}", 8)),
             Contains("something other than an extent"));
  CHECK_THAT(open_error(folder.raw("{" + entry("a", "[4611686018427387904]", 0, 8) + "}", 8)),
             Contains("too large"));
  CHECK_THAT(open_error(folder.raw("{" + entry("a", "[0]", 8, 0) + "}", 8)),
             Contains("before it begins"));
  CHECK_THAT(open_error(folder.raw(
                 "{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 4, 12) + "}", 12)),
             Contains("tensor 'b' overlaps"));
  CHECK_THAT(open_error(folder.raw(
                 "{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 12, 20) + "}", 20)),
             Contains("4 bytes before tensor 'b'"));
  CHECK_THAT(open_error(folder.raw(
                 "{" + entry("a", "[2]", 0, 8) + "," + entry("a", "[2]", 0, 8) + "}", 8)),
             Contains("names 'a' twice"));
}

TEST_CASE("ranks have files of their own", "[safetensors]") {
  CHECK(rank_file("out.{rank}.safetensors", 3) == "out.3.safetensors");
  CHECK(rank_file("{rank}/{rank}", 12) == "12/12");
  CHECK(rank_file("same", 3) == "same");
  CHECK(check_output_pattern("same", 1).ok);
  CHECK(check_output_pattern("o.{rank}", 2).ok);
  CHECK_THAT(check_output_pattern("same", 2).message, Contains("'same' is one file for 2 ranks"));
}
