#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/host/cubin_cache.h"
#include "runtime/host/sha256.h"
#include "tests/catch.h"

namespace maco::runtime {
namespace {

namespace fs = std::filesystem;
using test::Contains;

// A folder that goes away with the test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "maco-cache-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
};

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

const std::string kKey(64, '7');

}  // namespace

TEST_CASE("sha-256 gives the standard's values") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t length = 50; length < 140; ++length) {  // in pieces as at once, around the block size
    const std::string text(length, 'x');
    Sha256 hash;
    for (char c : text) hash.add(std::string_view(&c, 1));
    CHECK(hash.hex() == sha256(text));
  }
}

TEST_CASE("everything that the code depends on is in the key") {
  const std::string key = cubin_key("source", "sm_90a", {13, 0}, {"-a", "-b"});
  CHECK(key.size() == 64);
  CHECK(key == cubin_key("source", "sm_90a", {13, 0}, {"-a", "-b"}));
  CHECK(key != cubin_key("sourcf", "sm_90a", {13, 0}, {"-a", "-b"}));
  CHECK(key != cubin_key("source", "sm_90", {13, 0}, {"-a", "-b"}));
  CHECK(key != cubin_key("source", "sm_90a", {12, 0}, {"-a", "-b"}));
  CHECK(key != cubin_key("source", "sm_90a", {13, 1}, {"-a", "-b"}));
  CHECK(key != cubin_key("source", "sm_90a", {13, 0}, {"-a-b"}));
  CHECK(key != cubin_key("source", "sm_90a", {13, 0}, {"-a"}));
  CHECK(cubin_key("b", "sm_90a", {13, 0}, {"a"}) != cubin_key("", "sm_90a", {13, 0}, {"a", "b"}));
}

TEST_CASE("an entry comes back as it was stored") {
  Folder folder;
  const CubinCache cache((folder.path / "a" / "b").string());
  std::string note;
  CHECK(!cache.load(kKey, note));
  CHECK_THAT(note, Contains("not in the cubin cache"));
  for (const std::string& image :
       {std::string("x"), std::string(), std::string(100000, '\0') + "\n\r\xff"}) {
    REQUIRE(cache.store(kKey, image, note));
    CHECK(cache.load(kKey, note) == image);
  }
  CHECK(!cache.load(std::string(64, '8'), note));
  CHECK(std::distance(fs::directory_iterator(folder.path / "a" / "b"), {}) ==
        1);  // no temporary stays
}

TEST_CASE("a damaged entry is not used and can be replaced") {
  Folder folder;
  const CubinCache cache(folder.path.string());
  const fs::path file = folder.path / (kKey + ".cubin");
  const std::string image(1000, 'i');
  std::string note;
  REQUIRE(cache.store(kKey, image, note));
  const std::string whole = contents(file);
  for (size_t length : {0, 1, 8, 47, 48, 49, 500}) {
    overwrite(file, whole.substr(0, length));
    CHECK(!cache.load(kKey, note));
    CHECK_THAT(note, Contains("damaged"));
  }
  for (size_t at : {0, 9, 20, 48, 600}) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    overwrite(file, changed);
    CHECK(!cache.load(kKey, note));
  }
  overwrite(file, whole + "more");
  CHECK(!cache.load(kKey, note));
  REQUIRE(cache.store(kKey, image, note));
  CHECK(cache.load(kKey, note) == image);
}

TEST_CASE("a cache that can't be written is no cache") {
  Folder folder;
  overwrite(folder.path / "file", "");
  std::string note;
  for (const std::string& place : {(folder.path / "file").string(), std::string("/proc/maco")}) {
    const CubinCache cache(place);
    CHECK(!cache.store(kKey, "image", note));
    CHECK_THAT(note, Contains("can't be written"));
    CHECK(!cache.load(kKey, note));
  }
  const CubinCache none("");
  CHECK(!none.store(kKey, "image", note));
  CHECK(!none.load(kKey, note));
}

TEST_CASE("writers at the same time leave a whole entry at every moment") {
  Folder folder;
  const CubinCache cache(folder.path.string());
  const std::string images[2] = {std::string(200000, 'a'), std::string(300000, 'b')};
  std::string note;
  REQUIRE(cache.store(kKey, images[0], note));
  const pid_t child = fork();
  if (child == 0) {
    bool ok = true;
    std::string ignored;
    for (int i = 0; i < 50; ++i) ok = cache.store(kKey, images[1], ignored) && ok;
    _exit(ok ? 0 : 1);
  }
  REQUIRE(child > 0);
  bool stored = true, whole = true;
  std::thread writer([&] {
    std::string ignored;
    for (int i = 0; i < 50; ++i) stored = cache.store(kKey, images[0], ignored) && stored;
  });
  for (int i = 0; i < 50; ++i) {
    const auto found = cache.load(kKey, note);
    whole = whole && found && (*found == images[0] || *found == images[1]);
  }
  writer.join();
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(stored);
  CHECK(whole);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("what a killed writer left blocks nobody and goes") {
  Folder folder;
  const CubinCache cache(folder.path.string());
  std::string note;
  // Under all names that a process of this number could have thought of.
  std::vector<fs::path> left;
  for (int serial = 0; serial < 100; ++serial) {
    left.push_back(folder.path / (kKey + ".cubin." + std::to_string(getpid()) + "." +
                                  std::to_string(serial) + ".tmp"));
    overwrite(left.back(), "half");
  }
  const fs::path other = folder.path / "mine.tmp",
                 entry = folder.path / (std::string(64, '8') + ".cubin");
  overwrite(other, "");
  overwrite(entry, "");
  REQUIRE(cache.store(kKey, "image", note));
  CHECK(cache.load(kKey, note) == "image");
  CHECK(fs::exists(left[0]));  // its writer may still be at work
  for (const fs::path& path : {left[0], other, entry})
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  REQUIRE(cache.store(kKey, "image", note));
  CHECK(!fs::exists(left[0]));
  CHECK(fs::exists(left[1]));
  CHECK(fs::exists(other));
  CHECK(fs::exists(entry));
}

TEST_CASE("of more than there is room for, what was used longest ago goes") {
  const Folder folder;
  const CubinCache cache(folder.path.string(), 10000);
  std::string note;
  const std::string image(3000, 'x');
  const auto key_of = [](char c) { return std::string(64, c); };
  std::ofstream(folder.path / "own.cubin") << std::string(50000, 'z');
  const auto age = [&](char key, int hours) {
    std::filesystem::last_write_time(
        folder.path / (key_of(key) + ".cubin"),
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (char key : {'a', 'b', 'c'}) REQUIRE(cache.store(key_of(key), image, note));
  age('a', 3), age('b', 2), age('c', 1);
  CHECK(cache.load(key_of('a'), note));  // is young again
  REQUIRE(cache.store(key_of('d'), image, note));
  CHECK_FALSE(cache.load(key_of('b'), note));
  CHECK(cache.load(key_of('a'), note));
  CHECK(cache.load(key_of('d'), note));
  // The newest stays, however large.
  REQUIRE(cache.store(key_of('e'), std::string(20000, 'y'), note));
  CHECK(cache.load(key_of('e'), note));
  CHECK_FALSE(cache.load(key_of('d'), note));
  CHECK(fs::exists(folder.path / "own.cubin"));
}

TEST_CASE("the standard folder follows the environment") {
  auto saved = [](const char* name) {
    return std::getenv(name) ? std::optional<std::string>(std::getenv(name)) : std::nullopt;
  };
  const auto own = saved("MACO_CACHE_DIR"), xdg = saved("XDG_CACHE_HOME"), home = saved("HOME");
  auto restore = [](const char* name, const std::optional<std::string>& value) {
    if (value)
      setenv(name, value->c_str(), 1);
    else
      unsetenv(name);
  };
  Status status;
  setenv("HOME", "/h", 1);
  unsetenv("MACO_CACHE_DIR");
  unsetenv("XDG_CACHE_HOME");
  CHECK(CubinCache::standard(status).folder() == "/h/.cache/maco");
  setenv("XDG_CACHE_HOME", "/x", 1);
  CHECK(CubinCache::standard(status).folder() == "/x/maco");
  setenv("MACO_CACHE_DIR", "/m", 1);
  CHECK(CubinCache::standard(status).folder() == "/m");
  CHECK(status);
  // What isn't there can be made, but not where a file is.
  const Folder folder;
  const std::string file = (folder.path / "file").string(), link = (folder.path / "link").string();
  std::ofstream(file) << "1";
  fs::create_symlink(folder.path / "nowhere", link);
  for (const std::string& wrong : {file, file + "/below/it", link}) {
    setenv("MACO_CACHE_DIR", wrong.c_str(), 1);
    Status refused;
    CubinCache::standard(refused);
    CHECK(
        refused.message ==
        fmt::format(
            "MACO_CACHE_DIR is '{}', where no folder can be made (set it to nothing for no cache)",
            wrong));
  }
  for (const std::string& right : {folder.path.string(), (folder.path / "a/b").string() + "/"}) {
    setenv("MACO_CACHE_DIR", right.c_str(), 1);
    Status taken;
    CHECK(CubinCache::standard(taken).folder() == right);
    CHECK(taken);
  }
  setenv("MACO_CACHE_DIR", "", 1);
  CHECK(CubinCache::standard(status).folder().empty());
  const auto most = saved("MACO_CACHE_MB");
  setenv("MACO_CACHE_MB", "12", 1);
  CHECK(CubinCache::standard(status).most_bytes() == int64_t{12} << 20);
  CHECK(status);
  for (const char* wrong :
       {"12abc", "abc", "-1", "", "1e3", "2199023255552", "99999999999999999999"}) {
    setenv("MACO_CACHE_MB", wrong, 1);
    Status refused;
    CubinCache::standard(refused);
    CHECK(refused.message == fmt::format("MACO_CACHE_MB is '{}', which is no number of megabytes "
                                         "from 0 to 2^40",
                                         wrong));
  }
  restore("MACO_CACHE_MB", most);
  restore("MACO_CACHE_DIR", own);
  restore("XDG_CACHE_HOME", xdg);
  restore("HOME", home);
}

}  // namespace maco::runtime
