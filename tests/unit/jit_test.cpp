// What the runtime says without NVRTC, and which devices a cubin is for.
#include "runtime/host/jit.h"

#include "runtime/host/nvrtc.h"
#include "tests/catch.h"
#include "tests/unit/variable.h"

namespace maco::runtime {

using test::Contains;
using test::Variable;

TEST_CASE("a place that has no nvrtc is named, and no other is tried") {
  Status status;
  Variable place("MACO_NVRTC", "/nonexisting/libnvrtc.so");
  CHECK(!Nvrtc::load(status));
  CHECK_THAT(status.message, Contains("MACO_NVRTC") && Contains("/nonexisting/libnvrtc.so"));
  CHECK(status.message.find('\n') == std::string::npos);
  std::string image;
  CHECK(
      compile_kernel("extern \"C\" __global__ void tiny() {}\n", "sm_90a", false, image).message ==
      status.message);
  Variable folder("MACO_NVRTC", "/proc");
  CHECK(!Nvrtc::load(status));
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

TEST_CASE("PTX runs on later devices too, unless it has what only some have") {
  auto runs = [](const char* arch, int major, int minor) {
    return ptx_runs_on(*parse_arch(arch), major, minor);
  };
  CHECK(runs("sm_80", 8, 0));
  CHECK(runs("sm_80", 8, 6));
  CHECK(runs("sm_80", 9, 0));
  CHECK(runs("sm_75", 12, 0));
  CHECK(!runs("sm_86", 8, 0));
  CHECK(!runs("sm_120", 9, 0));
  CHECK(runs("sm_90a", 9, 0));
  CHECK(!runs("sm_90a", 10, 0));
  CHECK(!runs("sm_100f", 12, 0));
}

}  // namespace maco::runtime
