// Post-conditions of collectives: Programs that are right but for what they move.
#include <sstream>

#include "compiler/frontend/frontend.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/compiled.h"

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

std::string program_of(const char* text) { return print(compiled(text).program); }

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

TEST_CASE("a collective may send its result on, and that may be the next one's operand") {
  const std::string text = program_of(R"(graph g(world = 4) {
  input x : f32[9, 96]
  first = broadcast(x, root = 0, algorithm = twoshot)
  output y = broadcast(first, root = 2, algorithm = twoshot)
})");
  REQUIRE(verdict(text) == "");
  // Rank 1 owns tile 0 of the first: its copy goes to all others, and so into what rank 2 sends.
  CHECK_THAT(verdict(with(text, "put op=first", "(0 -> 1)", "(1 -> 1)")),
             Catch::Contains("'first' (put)"));
  CHECK(verdict(with(text, "take op=first", " moves copy(0 -> 1)", "")) ==
        "contributions: 'first' leaves 864 of the 864 elements of 'first' on rank 0 unwritten");
  CHECK(verdict(with(text, "take op=y", " moves copy(0 -> 1)", "")) ==
        "contributions: 'y' leaves 864 of the 864 elements of 'y' on rank 0 unwritten");
}

TEST_CASE("collectives deliver what they promise") {
  const std::string text = program_of(kGraph);
  REQUIRE(verdict(text) == "");
  struct Change {
    const char *after, *from, *to, *reason;
  };
  const Change changes[] = {
      // What is promised, and what calls do.
      {"collective one", "reduce=max", "", "reduces by 'max', not by 'sum' as 'one' has to"},
      {"combine op=two", "reduce sum", "reduce min",
       "reduces by 'min', not by 'sum' as 'two' has to"},
      {"collective told", "peer=1", "peer=2",
       "'told' (take) tile 0 on rank 0 makes elements 0 to 64"},
      {"collective shifted", "peer=1", "peer=2", "of 'x' of rank 1"},
      {"collective gathered", "in=x", "in=z", "promises allgather of 11520 elements to 11520"},
      {"collective scattered reduce_scatter", "reduce_scatter", "alltoall",
       "promises alltoall of 11520 elements to 3840 of 3 ranks"},
      {"collective one allreduce", "allreduce", "broadcast", "of ranks 0, 1, 2 instead of"},
      // What is moved.
      {"put op=one", "copy(0 -> 1)", "copy(1 -> 1)",
       "moves data from access 1, which it may leave unwritten"},
      {"put op=one", "moves copy(0 -> 1)", "",
       "parts of which nothing was moved to in this launch"},
      {"combine op=one", "(0, 1 -> 2)", "(1 -> 2)", ": that of rank 0 is absent"},
      {"combine op=one", "(0, 1 -> 2)", "(0, 0, 1 -> 2)", "of rank 0 twice"},
      {"combine op=one", "reduce max(0, 1 -> 2)", "copy(0, 1 -> 2)",
       "copies several regions to one place"},
      {"combine op=two", "-> 2, 3)", "-> 2)", "which nothing was moved to in this launch"},
      {"combine op=scattered", "(0, 1 -> 2)", "(0 -> 2)", ": that of ranks 1, 2 is absent"},
      {"take op=gathered", "copy(0 -> 1)", "copy(0 -> 0)", "moves data to access 0, which it only"},
      {"take op=gathered", "copy(0 -> 1)", "copy(0 -> 2)", "moves data of access 2, but has 2"},
      // Regions.
      {"task", "block=shift(1)*1]; may gathered[", "block=shift(2)*1]; may gathered[",
       "reads none that allgather 'gathered' (put) tile 0 of rank 1 writes there"},
      {"collective meet", "collective meet barrier", "collective met barrier",
       "order: no task does the work of 'met'"},
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

TEST_CASE("a reduction round a ring is followed from rank to rank") {
  const std::string text = program_of(R"(graph g(world = 4) {
  dim tokens <= 40
  input x : f32[tokens, 96]
  input z : f32[4 * tokens, 96]
  output mean = allreduce(x, algorithm = ring, reduce = avg)
  output top = reduce_scatter(z, algorithm = ring, reduce = max)
  output all = allgather(x, algorithm = ring)
})");
  REQUIRE(verdict(text) == "");
  struct Change {
    const char *after, *from, *to, *reason;
  };
  const Change changes[] = {
      // The sums that an average is made of are sums, and only that of all is divided.
      {"hop op=mean", "reduce sum(0, 1 -> 2)", "reduce avg(0, 1 -> 2)",
       "averages in several steps"},
      {"hop op=mean", "reduce avg(0, 1 -> 2, 3)", "reduce sum(0, 1 -> 2, 3)",
       "reduces by 'sum', not by 'avg' as 'mean' has to"},
      {"hop op=mean", "reduce sum(0, 1 -> 2)", "reduce max(0, 1 -> 2)",
       "reduces by 'avg' what was reduced by 'max'"},
      {"hop op=mean", "reduce sum(0, 1 -> 2)", "copy(1 -> 2)", "averages in several steps"},
      {"collective mean", "reduce=avg", "", "reduces by 'avg', not by 'sum' as 'mean' has to"},
      {"hop op=top", "reduce max(0, 1 -> 2)", "copy(1 -> 2)", ": that of ranks 1, 2 is absent"},
      {"hop op=top", "reduce max(0, 1 -> 2)", "reduce sum(0, 1 -> 2)",
       "reduces by 'max' what was reduced by 'sum'"},
      {"hop op=all", "copy(0 -> 1, 2)", "copy(0 -> 1)",
       "parts of which nothing was moved to in this launch"},
  };
  for (const Change& c : changes) {
    INFO(c.after << ": " << c.from << " -> " << c.to);
    CHECK_THAT(verdict(with(text, c.after, c.from, c.to)), Contains(c.reason));
  }
}

TEST_CASE("messages are what their senders sent, and zeros where there are none") {
  const std::string text = program_of(R"(graph g(world = 3) {
  input x : f32[8, 96]
  input z : f32[8, 96]
  send(x, dst = rank + 1, if = rank < 2) @first
  send(z, dst = rank + 1, if = rank < 2) @second
  output a = recv(src = rank - 1, shape = [8, 96], dtype = f32, if = rank > 0)
  output b = recv(src = rank - 1, shape = [8, 96], dtype = f32, if = rank > 0)
  t = recv(src = rank - 1, tag = 1, shape = [8, 96], dtype = f32, if = rank > 0)
  output u = add(t, x)
  send(u, dst = rank + 1, tag = 1, if = rank < 2) @on
})");
  REQUIRE(verdict(text) == "");
  struct Change {
    const char *after, *from, *to, *reason;
  };
  const Change changes[] = {
      {"collective a message", "peer=1", "peer=2", "of 'x' of rank 0 instead of"},
      {"collective a message", "in=x", "in=z", "nothing was moved to in this launch"},
      {"collective a message", "sender=first", "sender=second",
       "nothing says what send 'first' has to deliver"},
      {"collective a message", "ranks=0x6", "ranks=0x2",
       "nothing says what 'a' has to deliver to rank 2"},
      {"collective a message", "ranks=0x6", "ranks=0x7", "'a' is promised twice"},
      {"collective a zeros", "ranks=0x1", "ranks=0x3", "'a' is promised twice"},
      {"collective t message", "in=u", "in=x", "nothing was moved to in this launch"},
      // What is moved.
      {"clear op=a", "clear(-> 0)", "copy(0 -> 0)",
       "from elements 0 to 64 of 'a' of rank 0 instead of zeros"},
      {"clear op=a", " moves clear(-> 0)", "", "without moving anything there"},
      {"take op=a", "copy(0 -> 1)", "clear(-> 1)", "from zeros instead of"},
  };
  for (const Change& c : changes) {
    INFO(c.after << ": " << c.from << " -> " << c.to);
    CHECK_THAT(verdict(with(text, c.after, c.from, c.to)), Contains(c.reason));
  }
  // What `first` sends goes where what `second` sends should, and the other way round.
  std::istringstream lines(text);
  std::string exchanged, line;
  while (std::getline(lines, line)) {
    const bool puts = line.find(" c0") != std::string::npos ||
                      line.find(" c1#") != std::string::npos ||
                      line.find(" c1 ") != std::string::npos;
    for (size_t at = 0; puts && at + 1 < line.size(); ++at)
      if ((line[at] == 'a' || line[at] == 'b') && line[at - 1] == ' ' && line[at + 1] == '.')
        line[at] = line[at] == 'a' ? 'b' : 'a';
    exchanged += line + "\n";
  }
  CHECK_THAT(verdict(exchanged),
             Contains("'a' (take) tile 0 on rank 1 reads a.slots[0:1, 0:64], parts of which "
                      "nothing was moved to in this launch"));
}

TEST_CASE("a chunk that is moved to the wrong place, left out or doubled is seen") {
  // Two tiles of a column each, so that the second tile can take the place of the first.
  const std::string text = program_of(R"(graph g(world = 2) {
  input x : f32[1, 96]
  output y = allgather(x)
})");
  REQUIRE(verdict(text) == "");
  // The second put sends the first tile to the second's slot, and says so.
  CHECK_THAT(verdict(with(text, "c0#1", "read x[0:1, 64:96]", "read x[0:1, 0:32]")),
             Contains("makes elements 64 to 96 of block 1 of 'y' from elements 0 to 32 of 'x' of "
                      "rank 1 instead of elements 64 to 96 of 'x' of rank 1"));
  CHECK_THAT(verdict(with(text, "c0#1", "read x[0:1, 64:96]", "read x[0:1, 0:64]")),
             Contains("moves 64 elements to y.slots[1:2, 64:96], which has 32"));
  // A part of what is wrong is as wrong.
  CHECK_THAT(verdict(with(with(text, "c0#1", "read x[0:1, 64:96]", "read x[0:1, 0:64]"), "c1#1",
                          "read y.slots[0:1, 64:96 block=shift(1)*1]",
                          "read y.slots[0:1, 64:80 block=shift(1)*1]")),
             Contains("moves 64 elements to y.slots[1:2, 64:96], which has 32"));
  // The own second tile is copied to where nothing is missing.
  CHECK_THAT(verdict(with(text, "c2#1", "write y[0:1, 64:96 block=self*1]",
                          "write y[0:1, 64:80 block=self*1]")),
             Contains("order: no task writes output y[0:1, 80:96] on rank 0"));
}

TEST_CASE("a kernel moves what its Program declares") {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_dsl(diagnostics.add_file("g", kGraph), diagnostics);
  REQUIRE(graph);
  const std::string text = program_of(kGraph);
  const auto emitted = [&](const std::string& changed) {
    ir::Diagnostics said;
    const auto program = parse_program(said.add_file("p", changed), said);
    REQUIRE(program);
    const bool ok = !api::emit_kernel(*graph, *program, {}, said).empty();
    CHECK(ok == !said.has_errors());
    return said.has_errors() ? said.all()[0].message : "";
  };
  CHECK(emitted(text) == "");
  struct Change {
    const char *after, *from, *to, *reason;
  };
  // The verifier accepts all of these: what is declared is right.
  const Change changes[] = {
      {"combine op=one", "reduce=max", "reduce=min", "combine of 'one' moves other data than it"},
      {"combine op=two", "forward=true", "forward=false", "hasn't the parameters and operands"},
      {"put op=one", "BR=7", "BR=6", "allreduce 'one' (put) tile 0 touches other regions"},
      {"put op=two", "slot_div=3", "slot_div=2", "allreduce 'two' (put) tile 2 touches other"},
      {"put op=two", "mode=owner", "mode=others",
       "allreduce 'two' (put) tile 0 touches other regions"},
      {"put op=one", "W=3", "W=4", "put of 'one' moves other data than it declares"},
      {"put op=one", "stride=", "strid=", "'one' gives 'put' a parameter 'strid', which it"},
  };
  for (const Change& c : changes) {
    INFO(c.after << ": " << c.from << " -> " << c.to);
    const std::string changed = with(text, c.after, c.from, c.to);
    CHECK(verdict(changed) == "");
    CHECK_THAT(emitted(changed), Contains(c.reason));
  }
}

}  // namespace maco::test
