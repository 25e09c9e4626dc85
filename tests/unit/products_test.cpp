// A tool's files appear together or not at all.
#include "tools/products.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/catch.h"

namespace maco::test {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("maco-products-" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
  }
  std::string get(const std::string& name) const {
    std::ifstream in(file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  auto entries() const { return std::distance(fs::directory_iterator(path), {}); }
};

void write(tools::Products& products, const std::string& path, const std::string& text) {
  std::ofstream(products.begin(path)) << text;
}

TEST_CASE("files are as they were until all are there") {
  const Folder folder;
  folder.put("a", "old a");
  std::string error;
  {
    tools::Products products;
    write(products, folder.file("a"), "a");
    write(products, folder.file("b"), "b");
    CHECK(folder.get("a") == "old a");
    CHECK(!fs::exists(folder.file("b")));
    CHECK(products.finish(error));
  }
  CHECK(error == "");
  CHECK(folder.get("a") == "a");
  CHECK(folder.get("b") == "b");
  CHECK(folder.entries() == 2);
}

TEST_CASE("a run that ends before all are there leaves nothing") {
  const Folder folder;
  folder.put("a", "old a");
  {
    tools::Products products;
    write(products, folder.file("a"), "a");
    write(products, folder.file("b"), "b");
  }
  CHECK(folder.get("a") == "old a");
  CHECK(folder.entries() == 1);
}

TEST_CASE("if one can't take its place, none has") {
  for (const std::string bad : {"b", "c"}) {
    const Folder folder;
    folder.put("a", "old a");
    folder.put("c", "old c");
    std::string error;
    {
      tools::Products products;
      for (const std::string name : {"a", "b", "c"}) write(products, folder.file(name), name);
      fs::remove(folder.file(bad));
      fs::create_directories(folder.file(bad) + "/inside");
      CHECK_FALSE(products.finish(error));
    }
    CHECK_THAT(error, Contains("can't write '" + folder.file(bad) + "': "));
    CHECK(folder.get("a") == "old a");
    if (bad == "b") CHECK(folder.get("c") == "old c");
    CHECK(folder.entries() == (bad == "b" ? 3 : 2));
  }
}

TEST_CASE("a link stays one, a device is written as it is") {
  const Folder folder;
  folder.put("real", "old");
  fs::create_symlink(folder.file("real"), folder.file("link"));
  fs::create_symlink("/dev/null", folder.file("none"));
  std::string error;
  CHECK(tools::write_product(folder.file("link"), "new", error));
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(folder.get("real") == "new");
  CHECK(tools::write_product(folder.file("none"), "new", error));
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(error == "");
  CHECK(folder.entries() == 3);
  CHECK_FALSE(tools::write_product("/dev/full", "new", error));
  CHECK(error == "can't write '/dev/full': No space left on device");
}

TEST_CASE("why a file can't be written is known before") {
  const Folder folder;
  const auto why = [](const std::string& path) {
    std::string error;
    const bool can = tools::can_write(path, error);
    CHECK(can == error.empty());
    return error;
  };
  CHECK(why(folder.file("new")) == "");
  CHECK(why("new") == "");
  CHECK(why("/dev/null") == "");
  CHECK(why(folder.path.string()) == "can't write '" + folder.path.string() + "': it is a folder");
  CHECK_THAT(why(folder.file("no/such")),
             Contains("no/such': there is no folder '" + folder.file("no") + "'"));
}

}  // namespace
}  // namespace maco::test
