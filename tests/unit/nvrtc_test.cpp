// What needs NVRTC. Where there is none each says so, and ctest shows the whole as skipped; what
// needs none stands in jit_test.cpp.
#include "runtime/host/nvrtc.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/host/jit.h"
#include "tests/catch.h"
#include "tests/unit/variable.h"

namespace maco::runtime {
namespace {

using test::Contains;
using test::Variable;

const std::string kTiny =
    "extern \"C\" __global__ void tiny(int* p, int a) { p[threadIdx.x] += a; }\n";

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

}  // namespace maco::runtime
