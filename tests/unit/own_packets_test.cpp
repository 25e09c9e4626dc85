// Temporaries with packets: whose readers wait for hints and poll flags, and what is refused.
#include <regex>
#include <string>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using namespace ir;

std::string verdict(const std::string& text) {
  Diagnostics diagnostics;
  const auto program = parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  Diagnostics other = diagnostics;
  const bool ok = verify::verify(*program, diagnostics);
  CHECK(ok != diagnostics.has_errors());
  CHECK(verify::verify(*program, other, {.use_symmetry = false, .at_once = false}) == ok);
  return diagnostics.render();
}
std::string changed(const char* from, const char* to) { return with(kSent, from, to); }

// The text with all buffers `number` columns wide in place of 64.
std::string columns(const std::string& text, const std::string& number) {
  return std::regex_replace(text, std::regex("\\b64\\b"), number);
}

TEST_CASE("packets whose readers wait for hints of all of their writers are accepted") {
  CHECK(verdict(kSent) == "");
  Diagnostics diagnostics;
  const auto program = parse_program(diagnostics.add_file("p", kSent), diagnostics);
  REQUIRE(program);
  CHECK(program->packet_bytes() == 256);
  CHECK(program->buffers[1].bytes() == 256);  // an element and its flag
  Diagnostics again;
  const auto same = parse_program(again.add_file("p", print(*program)), again);
  REQUIRE(same);
  CHECK(*same == *program);
}

TEST_CASE("who reads packets waits for each of their writers") {
  CHECK_THAT(verdict(changed("; wait row.sent\n", "\n")),
             Contains("packets: matmul 'y' tile 0 reads packets of 'row' that matmul 'row' tile 0 "
                      "sends, but waits for no hint of it"));
  // For the other half, or those of a launch before.
  CHECK_THAT(verdict(with(changed("wait row.sent.0", "wait row.sent"), "; wait row.sent\n",
                          "; wait row.sent.0\n")),
             Contains("packets: matmul 'y' tile 0 reads packets of 'row' that matmul 'row' tile 1 "
                      "sends, but waits for no hint of it"));
  CHECK_THAT(verdict(changed("wait row.sent.0", "wait row.sent.0 lag 1")),
             Contains("packets: matmul 'z' tile 0 reads packets"));
}

TEST_CASE("packets are sent once, with flags") {
  CHECK_THAT(verdict(changed("row[0:1, 32:64]", "row[0:1, 16:64]")),
             Contains("packets: matmul 'row' tile 0 and matmul 'row' tile 1 write the same packets "
                      "of 'row'"));
  CHECK_THAT(verdict(with(changed("32:64]; signal row.sent", "32:64]"), "hint count=2", "hint")),
             Contains("packets: matmul 'row' tile 1 sends packets of 'row', but signals no hint"));
  CHECK_THAT(verdict(changed("hint count=2", "hint count=3")),
             Contains("count: event 'row.sent' counts to 3 a launch, but 2 signals arrive"));
}

TEST_CASE("a hint orders nothing") {
  // What else a task writes takes an event.
  const std::string other =
      with(changed("write row[0:1, 32:64]", "write row[0:1, 32:64] t[0:1, 0:64]"),
           "read row[0:1, 0:64]", "read row[0:1, 0:64] t[0:1, 0:64]");
  CHECK_THAT(verdict(other), Contains("race: matmul 'row' tile 1 writes t[0:1, 0:64]"));
  // A wait for a hint still waits: without its signal there is a deadlock.
  CHECK_THAT(verdict(changed("read x[0:1, 0:64]; write row[0:1, 0:32]; signal row.sent, row.sent.0",
                             "read x[0:1, 0:64]; write row[0:1, 0:32]; wait row.sent; signal "
                             "row.sent, row.sent.0")),
             Contains("deadlock"));
}

TEST_CASE("a release or acquire of a hint can't be left out, since there is none") {
  CHECK_THAT(verdict(changed("wait row.sent.0", "wait relaxed row.sent.0")), Contains("scope:"));
  CHECK_THAT(verdict(changed("signal row.sent, row.sent.0", "signal row.sent, relaxed row.sent.0")),
             Contains("scope:"));
}

TEST_CASE("temporaries that can't have packets") {
  struct Case {
    const char *from, *to, *reason;
  };
  const Case cases[] = {
      {"buffer t : bf16[1 x 64] temp offset=256", "buffer t : bf16[1 x 64] temp offset=0",
       "temporaries 'row' and 't' share bytes, but packets share theirs with nothing"},
      {"row : bf16[1 x 64] temp packets", "row : u8[1 x 64] temp packets",
       "temporary 'row' has packets of 1 byte, but they are of 2 or 4"},
      {"row : bf16[1 x 64] temp packets", "row : bf16[1 x 64] temp packets use=1",
       "temporary 'row' has use 1, but only slots have uses"},
      {"write row[0:1, 0:32]", "may row[0:1, 0:32]",
       "matmul 'row' tile 0 may write the packets of temporary 'row', which every launch has to "
       "send"},
      {"buffer y : bf16[1 x 64] output tensor=y", "buffer y : bf16[1 x 64] output tensor=y packets",
       "buffer 'y' is the caller's, but has packets"},
  };
  for (const Case& c : cases) {
    INFO(c.to);
    CHECK_THAT(verdict(changed(c.from, c.to)), Contains(c.reason));
  }
  CHECK_THAT(verdict(with(changed("limits sms", "dim n in [1, 1]\n  limits sms"),
                          "bf16[1 x 64] temp packets", "bf16[n max 1 x 64] temp packets")),
             Contains("its rows depend on dims"));
  // All that a reset writes lies in the arena.
  const std::string behind = with(with(kSent, "packets offset=0", "packets offset=256"),
                                  "temp offset=256", "temp offset=0");
  CHECK(verdict(columns(behind, "62")) == "");
  CHECK_THAT(verdict(with(columns(behind, "62"), "arena=512", "arena=504")),
             Contains("packets take 512 bytes of the arena, which has 504"));
  CHECK_THAT(verdict(columns(behind, "63")),
             Contains("temporary 'row' has packets, but rows of 126 bytes, no whole words"));
}

}  // namespace
}  // namespace maco::test
