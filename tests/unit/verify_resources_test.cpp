// What a CTA uses fits into what an SM has, and every CTA is resident: each refusal by its reason.
#include <fmt/format.h>

#include "compiler/cost/machine.h"
#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using namespace ir;

const std::string kProduct =
    R"(program product stage=synced world=1 target=cpu ctas=2 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384 pages=3 page_bytes=4096
  limits sms=2 threads=1024 registers=65536 shared=30720
  roles compute 0..2
  buffer x : f32[1 x 8] input tensor=x
  buffer w : f32[8 x 8] param tensor=w
  buffer t : f32[8 x 8] temp offset=0
  buffer y : f32[1 x 8] output tensor=y
  call c0 = matmul op=y kind=matmul (x, w, y) loads 1 ring=0 pages=1 page_bytes=4096 ahead
  task t0 c0#0 compute sm=0 place=0: read x[0:1, 0:8] w[0:8, 0:8]; write y[0:1, 0:8]
}
)";

// Without a loader.
const std::string kShort =
    R"(program add stage=synced world=1 target=cpu ctas=1 {
  uses consumers=256 signallers=96 registers=128 head=6144 scratch=16384
  limits sms=1 threads=1024 registers=65536 shared=30720
  roles compute 0..1
  buffer x : f32[1 x 8] input tensor=x
  buffer y : f32[1 x 8] output tensor=y
  call c0 = relu op=y kind=relu (x, y)
  task t0 c0#0 compute sm=0 place=0: read x[0:1, 0:8]; write y[0:1, 0:8]
}
)";

std::string verdict(const std::string& text) {
  Diagnostics diagnostics;
  const auto program = parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  const bool ok = verify::verify(*program, diagnostics);
  CHECK(ok != diagnostics.has_errors());
  return diagnostics.render();
}

TEST_CASE("a CTA that just fits is accepted") {
  CHECK(verdict(kProduct) == "");
  CHECK(verdict(with(kProduct, "synced", "scheduled")) == "");
  // 228 registers are as good as 232: 9 warps of 32 take 66816 of them.
  CHECK(verdict(with(with(kProduct, "registers=224", "registers=228"), "registers=65536",
                     "registers=66816")) == "");
  CHECK(verdict(with(with(kProduct, "consumers=256 loaders=32 registers=224",
                          "consumers=64 loaders=32 registers=16"),
                     "registers=65536", "registers=1536")) == "");
}

TEST_CASE("what is too much is refused with both figures") {
  struct Case {
    const char *from, *to, *reason;
  };
  const Case cases[] = {
      {"limits sms=2 threads=1024 registers=65536 shared=30720", "",
       "resources: the Program is synced, but doesn't say what an SM of target 'cpu' has: a line "
       "'limits' is missing"},
      {"uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384 pages=3 "
       "page_bytes=4096",
       "",
       "resources: the Program is synced, but doesn't say what a CTA uses: a line 'uses' is "
       "missing"},
      {"threads=1024", "threads=287",
       "resources: a CTA has 288 threads, but target 'cpu' allows 287"},
      {"registers=224", "registers=228",
       "resources: the 288 threads of a CTA with up to 228 registers each take 66816 (whole warps, "
       "in steps of 8), but an SM of target 'cpu' has 65536"},
      {"consumers=256", "consumers=288", "take 71680 (whole warps"},
      {"consumers=256", "consumers=255",
       "resources: a CTA has 255 consumers and 32 loaders, but roles are whole warps of 32"},
      {"loaders=32", "loaders=31", "roles are whole warps"},
      {" loaders=32", "", "resources: matmul 'y' loads through pages, but a CTA has no loaders"},
      {"shared=30720", "shared=30719",
       "resources: a CTA takes 30720 bytes of shared memory (2048, 16384, and 3 pages of 4096), "
       "but "
       "target 'cpu' has 30719"},
      {"head=2048", "head=2049", "a CTA takes 30721 bytes"},
      {"scratch=16384", "scratch=16385", "a CTA takes 30721 bytes of shared memory"},
      {"sms=2", "sms=1",
       "resources: 2 CTAs have to run at once, one an SM, but a rank has 1 SMs of target 'cpu': 1 "
       "would never start"},
      {" pages=3 page_bytes=4096", "",
       "resources: matmul 'y' holds 1 pages at a time, for which a ring of 2 is needed, but a CTA "
       "has 0"},
      {"pages=3", "pages=1", "for which a ring of 2 is needed, but a CTA has 1"},
      {"ring=0 pages=1", "ring=0 pages=3", "for which a ring of 4 is needed, but a CTA has 3"},
      {"ring=0 pages=1", "ring=0 pages=0", "holds 0 pages at a time"},
      {"ring=0 pages=1 page_bytes=4096 ahead",
       "ring=0 pages=1 page_bytes=4096 ahead, 0 ring=0 pages=2 page_bytes=4096 behind",
       "resources: matmul 'y' holds 3 pages at a time, for which a ring of 4 is needed, but a CTA "
       "has 3"},
      {"ring=0", "ring=1", "resources: matmul 'y' loads through ring 1, but a CTA has one ring"},
      {"loads 1", "loads 3", "resources: matmul 'y' loads operand 3, but has 3"},
      {"loads 1", "loads 2",
       "resources: matmul 'y' loads output 'y' before its waits are over: only what no task has "
       "written by then may be read"},
      {" w[0:8, 0:8]", "",
       "resources: matmul 'y' tile 0 loads 'w', which it doesn't declare to read"},
      {"pages=3 page_bytes=4096", "pages=3 page_bytes=3968",
       "resources: matmul 'y' fills pages of 4096 bytes, but a page has 3968"},
      {"pages=3 page_bytes=4096", "pages=2 page_bytes=4100",
       "resources: pages of 4100 bytes don't all begin on a multiple of 128"},
      {"(x, w, y)", "(x, t, y)",
       "resources: matmul 'y' loads temp 't' before its waits are over: only what no task has "
       "written by then may be read"},
      {" ahead", " box_rows=8 box_cols=64 pitch=8 ahead",
       "loads 'w' in boxes of 8 x 64 elements of rows of 8, which no map describes"},
      {" ahead", " box_rows=8 box_cols=8 pitch=0 ahead", "of rows of 0, which no map describes"},
      {" ahead", " box_rows=8 box_cols=32 pitch=8 run=3 ahead",
       "of rows of 8 in runs of 3, which no map describes"},
      {" ahead", " box_rows=257 box_cols=8 pitch=8 ahead", "which no map describes"},
      {"(x, w, y)", "(x)", "loads operand 1, but has 1"},
      {"consumers=256", "consumers=0", "a CTA of 0, 32, 0 and 0 threads with 224 registers each"},
      {"consumers=256", "consumers=2147483647", "isn't possible"},
      {"page_bytes=4096\n", "page_bytes=9223372036854775807\n", "isn't possible"},
      {"pages=3", "pages=2147483647", "a CTA takes 8796093036544 bytes of shared memory"},
  };
  for (const Case& c : cases) {
    CHECK_THAT(verdict(with(kProduct, c.from, c.to)), Contains(c.reason));
    CHECK_THAT(verdict(with(with(kProduct, "synced", "scheduled"), c.from, c.to)) + "synced",
               Contains("error: "));
    // Nothing has a place before it is scheduled.
    CHECK(verdict(with(with(kProduct, "synced", "planned"), c.from, c.to)) == "");
  }
  // What isn't loaded ahead may be anything.
  CHECK(verdict(with(with(kProduct, " ahead", " behind"), "param tensor=w", "state tensor=w")) ==
        "");
}

TEST_CASE("roles divide what a CTA is launched with, in groups of 128 threads") {
  const std::string divided = with(kProduct, "loaders=32 registers=224",
                                   "loaders=32 registers=168 spare=96 consumer_registers=224 "
                                   "loader_registers=56");
  CHECK(verdict(divided) == "");
  const std::string signals =
      with(divided, "registers=168 spare=96", "signallers=32 registers=168 spare=64");
  CHECK(verdict(with(signals, "head=2048 scratch=16384", "head=6144 scratch=12288")) == "");
  CHECK_THAT(verdict(signals), Contains("resources: a CTA has 2048 bytes for its own state, but "
                                        "tasks that a signaller prepares need 3072"));
  CHECK_THAT(
      verdict(with(signals, "signallers=32 registers=168 spare=64",
                   "signallers=64 registers=168 spare=32")),
      Contains("resources: a CTA has 64 signallers, but they are a warp of 32, or up to four "
               "without loaders"));
  CHECK_THAT(
      verdict(with(divided, "registers=168 spare=96", "signallers=96 registers=168")),
      Contains("resources: a CTA has 96 signallers, but they are a warp of 32, or up to four "
               "without loaders"));
  // Without loaders up to four.
  for (const int signallers : {32, 64, 96, 128, 160, 48}) {
    const std::string got =
        verdict(with(kShort, "signallers=96", fmt::format("signallers={}", signallers)));
    CAPTURE(signallers, got);
    if (signallers % 32 == 0 && signallers <= 128)
      CHECK(got == "");
    else
      CHECK_THAT(got, Contains(fmt::format("a CTA has {} signallers, but", signallers)));
  }
  struct Case {
    const char *from, *to, *reason;
  };
  const Case cases[] = {
      {"consumer_registers=224", "consumer_registers=232",
       "resources: roles divide 66560 registers among them, but the CTA is launched with 64512"},
      {"loader_registers=56", "loader_registers=64", "roles divide 65536 registers"},
      {"consumer_registers=224", "consumer_registers=220",
       "resources: consumers can't have 220 registers each: only 24 to 256, in steps of 8"},
      {"loader_registers=56", "loader_registers=16",
       "resources: other threads can't have 16 registers each"},
      {"consumer_registers=224 ", "", "consumers can't have 0 registers each"},
      {" loader_registers=56", "", "other threads can't have 0 registers each"},
      {" spare=96", "",
       "resources: 32 other threads divide registers, but they do so in groups of 128"},
      {"spare=96", "spare=128", "160 other threads divide registers"},
      {"spare=96", "spare=-32", "isn't possible"},
      {"consumer_registers=224 loader_registers=56", "consumer_registers=128 loader_registers=248",
       "resources: roles divide registers so that consumers have 128 and others 248, but only "
       "consumers get more than the 168 that all are launched with"},
      {" pages=3 page_bytes=4096", "", "divides registers without a ring of pages and a loader"},
      {"loaders=32 registers=168 spare=96", "registers=168 spare=128",
       "divides registers without a ring of pages and a loader"},
      {"consumers=256", "consumers=192", "192 consumers divide registers"},
      {"spare=96", "spare=864", "a CTA has 1152 threads, but target 'cpu' allows 1024"},
      {" consumer_registers=224 loader_registers=56", "", "consumers can't have 0 registers each"},
  };
  for (const Case& c : cases) CHECK_THAT(verdict(with(divided, c.from, c.to)), Contains(c.reason));
}

TEST_CASE("slots that take more than the limit are refused, at its place") {
  const std::string with_slot =
      with(with(kProduct, "arena=256", "arena=256 symmetric=512"), "  call c0",
           "  buffer s : f32[4 x 16] slot rotation=2 offset=0\n  call c0");
  const auto limited = [&](const char* limit) {
    return verdict(with(with_slot, "shared=30720", std::string("shared=30720") + limit));
  };
  CHECK(limited("") == "");
  CHECK(limited(" symmetric=512") == "");
  CHECK_THAT(limited(" symmetric=511"),
             Contains("p:3:58: error: resources: a rank's slots take 512 bytes of symmetric "
                      "memory, but 'limits' allows 511"));
  CHECK_THAT(limited(" symmetric=0"), Contains("but 'limits' allows 0"));
}

TEST_CASE("every target's own figures fit") {
  for (const cost::Machine& m : cost::all_machines()) {
    const char* text = "graph g {\n  input x : f32[4, 64]\n";
    for (const std::string body :
         {"  output y = relu(x)\n}\n", "  param w : f32[64, 64]\n  output y = matmul(x, w)\n}\n"}) {
      INFO(m.target << ": " << body);
      Diagnostics diagnostics;
      const auto graph = frontend::parse_dsl(diagnostics.add_file("g", text + body), diagnostics);
      INFO(diagnostics.render());
      REQUIRE(graph);
      passes::PipelineOptions options;
      options.target = m.target;
      options.board = m.board;
      const auto result = passes::run_pipeline(*graph, options, diagnostics);
      const std::string errors = diagnostics.render();
      INFO(errors);
      REQUIRE(result.ok);
      const auto& program = std::get<Program>(result.unit);
      CHECK(program.uses.pages == (body.find("matmul") == std::string::npos ? 0 : m.stream_pages));
      CHECK(program.limits.sms == m.sms);
      CHECK(program.limits.shared_bytes == m.shared_bytes);
    }
  }
}

}  // namespace
}  // namespace maco::test
