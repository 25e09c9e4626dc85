#include "runtime/host/nvrtc.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/host/jit.h"
#include "tests/catch.h"

namespace maco::runtime {
namespace {

using test::Contains;

const std::string kTiny =
    "extern \"C\" __global__ void tiny(int* p, int a) { p[threadIdx.x] += a; }\n";

// Sets a variable until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// Null, with a warning, on machines without NVRTC.
std::unique_ptr<Nvrtc> nvrtc() {
  Status status;
  auto found = Nvrtc::load(status);
  if (!found) WARN("not tested here: " << status.message);
  return found;
}

}  // namespace

TEST_CASE("nvrtc compiles a kernel for each kind of GPU") {
  auto compiler = nvrtc();
  if (!compiler) return;
  CHECK(compiler->version().first >= 12);
  std::string image, log;
  for (const char* arch : {"sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120"}) {
    CAPTURE(arch);
    const Status status = compiler->compile(kTiny, arch, kernel_compile_options(), image, log);
    CHECK(status.message == "");
    REQUIRE(status.ok);
    CHECK(image.substr(0, 4) ==
          "\x7f"
          "ELF");
  }
  REQUIRE(compiler->compile(kTiny, "compute_80", {}, image, log));
  CHECK_THAT(image, Contains(".target sm_80"));
}

TEST_CASE("a kernel that doesn't compile gives the compiler's words") {
  auto compiler = nvrtc();
  if (!compiler) return;
  std::string image, log;
  const Status status =
      compiler->compile("__global__ void k() { undeclared = 1; }", "sm_90a", {}, image, log);
  REQUIRE(!status.ok);
  CHECK_THAT(status.message,
             Contains("kernel.cu(1)") && Contains("undeclared") && Contains("sm_90a"));
  CHECK(image.empty());
  CHECK(!compiler->compile(kTiny, "sm_1", {}, image, log).ok);
}

TEST_CASE("a place that has no nvrtc is named, and no other is tried") {
  Status status;
  Variable place("MACO_NVRTC", "/nonexisting/libnvrtc.so");
  CHECK(!Nvrtc::load(status));
  CHECK_THAT(status.message, Contains("MACO_NVRTC") && Contains("/nonexisting/libnvrtc.so"));
  CHECK(status.message.find('\n') == std::string::npos);
  std::string image;
  CHECK(compile_kernel(kTiny, "sm_90a", false, image).message == status.message);
  Variable folder("MACO_NVRTC", "/proc");
  CHECK(!Nvrtc::load(status));
}

TEST_CASE("nvrtc is found in the folder that MACO_NVRTC names") {
  auto compiler = nvrtc();
  if (!compiler) return;
  Variable place("MACO_NVRTC", std::filesystem::path(compiler->path()).parent_path().string());
  Status status;
  auto again = Nvrtc::load(status);
  REQUIRE(again);
  CHECK(again->version() == compiler->version());
}

TEST_CASE("a compiled kernel is kept, and a damaged one compiled again") {
  namespace fs = std::filesystem;
  if (!nvrtc()) return;
  std::string folder = (fs::temp_directory_path() / "maco-jit-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  Variable place("MACO_CACHE_DIR", folder);
  std::string first, second;
  REQUIRE(compile_kernel(kTiny, "sm_80", false, first));
  fs::path entry;
  for (const auto& file : fs::directory_iterator(folder)) entry = file.path();
  REQUIRE(entry.extension() == ".cubin");
  REQUIRE(compile_kernel(kTiny, "sm_80", false, second));
  CHECK(first == second);
  const auto size = fs::file_size(entry);
  fs::resize_file(entry, size / 2);
  REQUIRE(compile_kernel(kTiny, "sm_80", false, second));
  CHECK(first == second);
  CHECK(fs::file_size(entry) == size);
  fs::remove_all(folder);
}

TEST_CASE("a cubin runs on the devices that it was made for") {
  CHECK(!parse_arch("cpu"));
  CHECK(!parse_arch("sm_"));
  CHECK(!parse_arch("sm_90b"));
  CHECK(!parse_arch("sm_90aa"));
  REQUIRE(parse_arch("sm_120"));
  CHECK(parse_arch("sm_120")->major == 12);
  auto runs = [](const char* arch, int major, int minor) {
    return runs_on(*parse_arch(arch), major, minor);
  };
  CHECK(runs("sm_90a", 9, 0));
  CHECK(!runs("sm_90a", 10, 0));
  CHECK(!runs("sm_100a", 10, 3));
  CHECK(runs("sm_100f", 10, 3));
  CHECK(runs("sm_80", 8, 6));
  CHECK(!runs("sm_86", 8, 0));
  CHECK(!runs("sm_80", 9, 0));
}

}  // namespace maco::runtime
