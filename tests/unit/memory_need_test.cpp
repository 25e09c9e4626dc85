// What a run will take of the machine's memory.
#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "ir/manifest.h"
#include "tests/catch.h"
#include "tools/memory.h"

namespace maco::test {
namespace {

const char* const kMeminfo =
    "MemTotal:       24576000 kB\nMemFree:         1000 kB\nMemAvailable:    2048 kB\n";

TEST_CASE("what a graph needs is what its tensors take") {
  ir::Diagnostics d;
  const auto graph = frontend::parse_graph(
      d.add_file(
          "g.maco",
          "graph g(world = 2) {\n dim n <= 32\n input x : f32[n, 64]\n param w : f16[64, 256]"
          "\n scalar k in [0, 4)\n h = matmul(x, w)\n output y = softmax(h)\n}\n"),
      d);
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  const auto compiled = api::compile(*graph, options, d);
  REQUIRE(compiled);
  const ir::Manifest manifest = *ir::parse_manifest(compiled->kernel).manifest;
  const double x = 32 * 64 * 4, w = 64 * 256 * 2, y = 32 * 256 * 4, h = y;
  const auto need = tools::memory_need(*graph, manifest, true, true);
  CHECK(need.session == 2 * (x + w + h + y));
  CHECK(need.reference == 2 * (x + w + h + y));
  CHECK(need.transfer == w);
  CHECK(need.all() == need.session + need.reference + need.transfer);
  CHECK(tools::memory_need(*graph, manifest, false, true).session == 0);
  CHECK(tools::memory_need(*graph, manifest, true, false).reference == 0);
  // The reference holds actual rows; ranks have room for the most.
  const auto small = tools::memory_need(*graph, manifest, true, true, {{"n", 8}});
  CHECK(small.session == need.session);
  CHECK(small.reference == 2 * (x / 4 + w + h / 4 + y / 4));
}

TEST_CASE("what this machine has is what the system says") {
  CHECK(tools::available_in(kMeminfo) == 2048 * 1024.0);
  CHECK(!tools::available_in(""));
  CHECK(!tools::available_in("MemTotal: 1 kB\n"));
  CHECK(!tools::available_in("MemAvailable: many kB\n"));
  CHECK(!tools::available_in("MemAvailable:"));
  CHECK(!tools::available_in("MemAvailable: 12 MB\n"));
}

TEST_CASE("a run is refused only if it surely doesn't fit") {
  const double gib = 1024.0 * 1024 * 1024;
  const tools::MemoryNeed need{3 * gib, 2 * gib, gib / 2};
  CHECK(tools::why_too_large(need, std::nullopt) == "");
  CHECK(tools::why_too_large(need, 5.5 * gib) == "");
  CHECK(tools::why_too_large(need, 5.25 * gib) ==
        "the run needs 5.5 GiB of memory (3.0 for the ranks, 2.0 for the reference, 0.5 for the "
        "largest tensor on its way), but 5.2 GiB are available");
}

}  // namespace
}  // namespace maco::test
