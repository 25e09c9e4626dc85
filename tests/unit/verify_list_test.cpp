// The list of tasks is what a Program means: addresses must not change it, and every execution does
// what it says.
#include <fmt/format.h>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

std::string verdict(const std::string& text) {
  ir::Diagnostics diagnostics;
  const auto program = ir::parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  const bool ok = verify::verify(*program, diagnostics);
  CHECK(ok == !diagnostics.has_errors());
  return diagnostics.render();
}

// Everything in one stream, so that nothing races.
std::string temporaries(int offset_of_b, const char* then) {
  return fmt::format(R"(program p stage=synced world=1 target=cpu ctas=1 arena=1024 {{
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1
  buffer a : f32[2 x 64] temp offset=0
  buffer b : f32[2 x 32] temp offset={}
  buffer y : f32[2 x 64] output tensor=y
  call c0 = f op=first kind=exp (a)
  call c1 = f op=second kind=exp (b)
  call c2 = f op=third kind=silu (a, b, y)
  task t0 c0#0 compute sm=0 place=0: write a[0:2, 0:64]
  task t1 c1#0 compute sm=0 place=1: write b[0:2, 0:32]
{})",
                     offset_of_b, then);
}

TEST_CASE("rows of blocks whose height only a launch knows are written before they are read") {
  // Ranks fill blocks of p in one stream, and all of it is read.
  const auto filled = [](const char* blocks, const char* read) {
    return verdict(fmt::format(R"(program p stage=synced world=2 target=cpu ctas=1 arena=256 {{
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1
  dim t in [2, 4]
  value %0 = t in [2, 4]
  buffer p : f32[2 * t max 8 x 8] temp offset=0
  buffer y : f32[8 x 8] output tensor=y
  call c0 = f op=fill kind=exp (p)
  call c1 = f op=all kind=exp (p, y)
  task t0 c0#0 compute sm=0 place=0: may {}
  task t1 c1#0 compute sm=0 place=1: read {}; write y[0:8, 0:8]
}})",
                               blocks, read));
  };
  const char* both = "p[0:4, 0:8 block=self*%0] p[0:4, 0:8 block=shift(1)*%0]";
  CHECK(filled(both, "p[0:8, 0:8]") == "");
  CHECK(filled(both, "p[0:4, 0:16 pitch=16]") == "");
  // Row 2 is the first block's or the second's: by the height.
  CHECK(filled("p[0:2, 0:8 block=rank(0)*%0]", "p[0:2, 0:8]") == "");
  CHECK_THAT(filled("p[0:2, 0:8 block=rank(0)*%0]", "p[2:3, 0:8]"),
             Contains("order: exp 'all' tile 0 reads p[2:4, 0:8] before any task"));
  CHECK_THAT(filled("p[0:4, 0:8 block=rank(0)*%0]", "p[0:8, 0:8]"),
             Contains("order: exp 'all' tile 0 reads p[4:8, 0:8] before any task"));
  CHECK_THAT(filled("p[0:4, 0:8 block=rank(1)*%0]", "p[0:8, 0:8]"),
             Contains("order: exp 'all' tile 0 reads p[0:4, 0:8] before any task"));
  CHECK_THAT(filled("p[0:4, 0:8 block=self*%0]", "p[0:8, 0:8]"),
             Contains("reads p[0:4, 0:8] before any task of the list writes it on rank 1"));
}

TEST_CASE("slots that live at once don't share bytes") {
  const std::string text = R"(program p stage=synced world=2 target=cpu ctas=1 symmetric=1024 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles comm 0..1
  buffer a : f32[1 x 64] slot rotation=2 offset=0
  buffer b : f32[1 x 64] slot rotation=2 offset=0
  call c0 = put op=first kind=f (a)
  call c1 = put op=second kind=f (b)
  call c2 = take op=third kind=f (a)
  event a.arrived peer
  event b.arrived peer
  task t0 c0#0 comm sm=0 place=0: may a[0:1, 0:64 on=others]; signal a.arrived to others
  task t1 c1#0 comm sm=0 place=1: may b[0:1, 0:64 on=others]; signal b.arrived to others
  task t2 c2#0 comm sm=0 place=2: read a[0:1, 0:64]; wait a.arrived from others, b.arrived from others
})";
  const auto with = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return verdict(std::string(text).replace(at, from.size(), to));
  };
  const std::string told = verdict(text);
  CHECK_THAT(told, Contains("error: order: f 'third' tile 0 reads a[0:1, 0:64] where f "
                            "'second' tile 0 has written 'b', which shares memory"));
  CHECK_THAT(told, Contains("note: 'a' lies at 0, 'b' at 0 of symmetric memory"));
  CHECK(with("read a[0:1, 0:64]", "read b[0:1, 0:64]") == "");
  CHECK(with("may b[0:1, 0:64 on=others]", "may b[0:1, 0:32 on=others]") != "");
  CHECK_THAT(with("b : f32[1 x 64] slot rotation=2 offset=0", "b : f32[1 x 64] slot offset=0"),
             Contains("slots 'a' and 'b' overlap: peers of different launches would meet there"));
  CHECK_THAT(with("b : f32[1 x 64] slot rotation=2", "b : bf16[1 x 64] slot rotation=2 packets"),
             Contains("slots 'a' and 'b' lie in one place, but only one has packets"));
  CHECK_THAT(
      with("b : f32[1 x 64] slot rotation=2", "b : f32[1 x 64] slot rotation=2 use=1"),
      Contains(
          "buffer 'b' has use 1: buffers with packets have uses 0 to 65535, others have none"));
}

TEST_CASE("temporaries that live at once don't share bytes") {
  const char* both =
      "  task t2 c2#0 compute sm=0 place=2: read a[0:2, 0:64] b[0:2, 0:32]; write y[0:2, "
      "0:64]\n}\n";
  CHECK(verdict(temporaries(512, both)) == "");
  const std::string told = verdict(temporaries(256, both));
  CHECK_THAT(told,
             Contains("error: order: silu 'third' tile 0 reads a[0:2, 0:64] where exp 'second' "
                      "tile 0 has written 'b', which shares memory: what was there is lost"));
  CHECK_THAT(told, Contains("note: 'a' lies at 0, 'b' at 256 of the arena"));
  // One after another they may.
  const char* only_b =
      "  task t2 c2#0 compute sm=0 place=2: read b[0:2, 0:32]; write y[0:2, 0:64]\n}\n";
  CHECK(verdict(temporaries(256, only_b)) == "");
  // So may parts of them: the second row of 'a' is written again, the first lies elsewhere.
  const char* again =
      "  task t2 c0#1 compute sm=0 place=2: write a[1:2, 0:64]\n"
      "  task t3 c2#0 compute sm=0 place=3: read a[0:2, 0:64]; write y[0:2, 0:64]\n}\n";
  CHECK(verdict(temporaries(256, again)) == "");
  CHECK_THAT(verdict(temporaries(0, again)), Contains("where exp 'second' tile 0 has written 'b'"));
}

TEST_CASE("a read that comes too early is not forgotten for a later one") {
  // By the list: t0 writes s, t1 reads and writes it, t2 reads it. The stream runs t2 before t1.
  const std::string text = R"(program p stage=synced world=1 target=cpu ctas=1 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1
  buffer s : f32[1 x 8] state tensor=s
  buffer y : f32[1 x 8] output tensor=y
  call c0 = f op=add kind=add (s)
  call c1 = f op=mul kind=mul (s, y)
  task t0 c0#0 compute sm=0 place=1: read s[0:1, 0:8]; write s[0:1, 0:8]
  task t1 c1#0 compute sm=0 place=0: read s[0:1, 0:8]; write y[0:1, 0:8]
}
)";
  CHECK_THAT(verdict(text),
             Contains("order: mul 'mul' tile 0 reads s[0:1, 0:8] before add 'add' tile "
                      "0 writes s[0:1, 0:8], but has to come after it"));
}

}  // namespace
}  // namespace maco::test
