// Post-conditions of collectives: Programs that are right but for what they move.
#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

const char* const kGraph = R"(graph g(world = 3) {
  dim tokens <= 40
  input x : f32[tokens, 96]
  input z : f32[3 * tokens, 96]
  output one = allreduce(x, algorithm = oneshot, reduce = max)
  output two = allreduce(x, algorithm = twoshot)
  output gathered = allgather(x)
  output scattered = reduce_scatter(z)
  output turned = alltoall(z)
  output told = broadcast(x, root = 1)
  output shifted = ring_shift(x)
  barrier() @meet
  output last = relu(x)
})";

std::string program_of(const char* text) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("g", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  const auto compiled = api::compile(*graph, options, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(compiled);
  return print(compiled->program);
}

std::string verdict(const std::string& text) {
  ir::Diagnostics diagnostics;
  const auto program = parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  const bool ok = verify::verify(*program, diagnostics);
  CHECK(ok == !diagnostics.has_errors());
  return diagnostics.has_errors() ? diagnostics.all()[0].message : "";
}

/// `from` becomes `to` where it comes first behind `after`.
std::string with(std::string text, const std::string& after, const std::string& from,
                 const std::string& to) {
  const size_t begin = text.find(after);
  INFO(after << " ... " << from);
  REQUIRE(begin != std::string::npos);
  const size_t at = text.find(from, begin);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("collectives deliver what they promise") {
  const std::string text = program_of(kGraph);
  REQUIRE(verdict(text) == "");
  struct Change {
    const char *after, *from, *to, *reason;
  };
  const Change changes[] = {
      // What is promised, and what calls do.
      {"collective one", "reduce=max", "",
       "contributions: combine of 'one' doesn't reduce as 'sum' has to"},
      {"combine op=two", "reduce=0", "reduce=3",
       "contributions: combine of 'two' doesn't reduce as 'sum' has to"},
      {"collective told", "peer=1", "peer=2",
       "makes tile 0 of 'told' from tile 0 of rank 1 instead of tile 0 of rank 2"},
      {"collective shifted", "peer=1", "peer=2", "instead of tile 0 of rank 1"},
      {"collective gathered", "in=x", "in=z",
       "contributions: put of 'gathered' reads 'x' instead of 'z'"},
      {"collective scattered reduce_scatter", "reduce_scatter", "alltoall", "where"},
      {"collective one allreduce", "allreduce", "broadcast",
       "of ranks 0, 1, 2 instead of tile 0 of rank 0"},
      {"combine op=scattered", "own_blocked=true", "own_blocked=false",
       "adds tile 0 of block 1 of rank 0 to tile 0 of block 0"},
      {"take op=gathered", "mode=1", "mode=4",
       "of slot 'gathered.slots' on rank 1 without declaring it"},
      {"take op=turned", "own_blocked=true", "own_blocked=false",
       "makes block 1, tile 0 of 'turned' from tile 0 of block 0 of rank 1"},
      // How they cut.
      {"put op=one", "BR=7", "BR=6", "leaves elements out: its tiles don't cover its blocks"},
      {"put op=one", "rows=value %0", "rows=const 40", "cut their blocks into different tiles"},
      {"put op=two", "slot_div=3", "slot_div=2", "takes 'two.parts' for other slots than it is"},
      {"put op=one", "packets=true", "packets=false",
       "takes 'one.slots' for other slots than it is"},
      {"put op=one", "W=3", "W=4", "has impossible parameters"},
      {"put op=one", "put op=one", "copy op=one",
       "contributions: what 'copy' of 'one' does isn't known"},
      {"collective meet", "collective meet barrier", "collective met barrier",
       "order: nothing does what 'met' promises"},
  };
  for (const Change& c : changes) {
    INFO(c.after << ": " << c.from << " -> " << c.to);
    CHECK_THAT(verdict(with(text, c.after, c.from, c.to)), Contains(c.reason));
  }
}

TEST_CASE("a collective of which nothing is promised is no proof") {
  const std::string text = program_of(kGraph);
  for (const char* op : {"one", "gathered", "told", "meet"}) {
    const size_t at = text.find(std::string("  collective ") + op);
    REQUIRE(at != std::string::npos);
    const std::string without = std::string(text).erase(at, text.find('\n', at) + 1 - at);
    CHECK_THAT(verdict(without), Contains("contributions: nothing says what") &&
                                     Contains(std::string("'") + op + "' has to deliver"));
  }
}

TEST_CASE("a chunk that is moved to the wrong place, left out or doubled is seen") {
  // Two tiles of a column each, so that the second tile can take the place of the first.
  const std::string text = program_of(R"(graph g(world = 2) {
  input x : f32[1, 96]
  output y = allgather(x)
})");
  REQUIRE(verdict(text) == "");
  // The second put sends the first tile to the second's slot, and says so.
  CHECK_THAT(verdict(with(text, "c0#1", "read x[0:1, 64:96]", "read x[0:1, 0:64]")),
             Contains("reads rows 0 to 1, columns 64 to 96 of 'x' without declaring it"));
  CHECK_THAT(
      verdict(with(text, "  task", "c0#1", "c0#0")),
      Contains("contributions: allgather 'y' (put) tile 0 on rank 0 reads rows 0 to 1, columns 0 "
               "to 64 of 'x' without declaring it"));
}

}  // namespace maco::test
