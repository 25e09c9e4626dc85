// What needs NVRTC. Where there is none each says so, and ctest shows the whole as skipped; what
// needs none stands in jit_test.cpp.
#include "runtime/host/nvrtc.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>

#include "runtime/host/jit.h"
#include "tests/catch.h"
#include "tests/compiled.h"
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

// A kernel with counters, packets, and pages that are loaded ahead of waits and behind them.
std::string kernel_for(const std::string& arch) {
  api::Options options;
  options.target = arch;
  return test::compiled(R"(graph g(world = 2) {
    input x : bf16[8, 128]
    param w : bf16[128, 128]
    part = matmul(x, w)
    sum = allreduce(part)
    output y = matmul(sum, sum, transpose_b = true)
  })",
                        options)
      .kernel;
}

size_t count_of(const std::string& what, const std::string& text) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
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

TEST_CASE("products and sums of users' kernels are contracted, as nvcc does it") {
  auto compiler = nvrtc();
  if (!compiler) return;
  std::string ptx, log;
  const Status status =
      compiler->compile("extern \"C\" __global__ void k(float* p) { p[0] = p[1] * p[2] + p[3]; }\n",
                        "compute_80", kernel_compile_options(false), ptx, log);
  INFO(status.message);
  REQUIRE(status.ok);
  CHECK_THAT(ptx, Contains("fma.rn.f32"));
}

// The lines of a text in PTX without the numbers of registers, sorted.
std::vector<std::string> instructions(const std::string& ptx) {
  std::vector<std::string> lines;
  std::string line;
  bool in_register = false;
  for (const char c : ptx) {
    if (c == '\n') {
      lines.push_back(line);
      line.clear();
    } else if (!in_register || !std::isdigit(static_cast<unsigned char>(c))) {
      line += c;
    }
    in_register = c == '%' || (in_register && std::isalnum(static_cast<unsigned char>(c)));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_CASE("a kernel stamps its tasks where it is told to, and reads no clock for it elsewhere") {
  auto compiler = nvrtc();
  if (!compiler) return;
  const std::string kernel = kernel_for("sm_90a");
  const auto ptx = [&](const std::string& source, bool profile) {
    std::string image, log;
    const Status status =
        compiler->compile(source, "compute_90a", kernel_compile_options(profile), image, log);
    INFO(status.message);
    REQUIRE(status.ok);
    return image;
  };
  const std::string plain = ptx(kernel, false), stamped = ptx(kernel, true);
  CHECK(plain.find('\0') == std::string::npos);
  CHECK(count_of("%clock", plain) == 0);
  CHECK(count_of("%globaltimer", plain) == 1);  // the look at a wait's deadline
  CHECK(count_of("%clock", stamped) > 4);
  CHECK(count_of("%globaltimer", stamped) == 1 + 2 * 2);

  // Nor is any other instruction there: without the hooks they are the same, in whatever registers
  // and order.
  const std::regex hook(R"(\n *((const u64 )?since = )?(ctx\.|Context::)profile_\w+\([^;]*\);)");
  const auto hooks = std::distance(std::sregex_iterator(kernel.begin(), kernel.end(), hook), {});
  CHECK(hooks == 31);
  CHECK(instructions(ptx(std::regex_replace(kernel, hook, ""), false)) == instructions(plain));
}

TEST_CASE("a profiled kernel compiles for each kind of GPU") {
  auto compiler = nvrtc();
  if (!compiler) return;
  for (const char* arch : {"sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    CAPTURE(arch);
    std::string image, log;
    const Status status =
        compiler->compile(kernel_for(arch), arch, kernel_compile_options(true), image, log);
    CHECK(status.message == "");
    CHECK(image.substr(1, 3) == "ELF");
    CHECK(log == "");
  }
  CHECK(kernel_compile_options(true) != kernel_compile_options(false));
}

// The kernel asserts that it fits.
TEST_CASE(
    "what a CTA keeps fits in its head, stamped or not, and for few ranks leaves a page more") {
  auto compiler = nvrtc();
  if (!compiler) return;
  for (const int world : {1, 8, 9})
    for (const bool profile : {false, true}) {
      CAPTURE(world, profile);
      api::Options options;
      options.target = "sm_90a";
      const std::string kernel = test::compiled(fmt::format(R"(graph g(world = {}) {{
        input x : bf16[1, 256]
        param up : bf16[512, 256]
        param down : bf16[256, 512]
        h = matmul(x, up, transpose_b = true)
        d = matmul(h, down, transpose_b = true)
        s = allreduce(d)
        output y = softmax(s)
      }})",
                                                            world),
                                                options)
                                     .kernel;
      CHECK_THAT(kernel, Contains("kSignallers = 32"));
      CHECK_THAT(kernel,
                 Contains(world <= 8 ? "kPages = 13, kPageBytes" : "kPages = 12, kPageBytes"));
      std::string image, log;
      const Status status =
          compiler->compile(kernel, "sm_90a", kernel_compile_options(profile), image, log);
      CHECK(status.message == "");
    }
}

}  // namespace maco::runtime
