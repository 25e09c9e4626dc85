// Every signal is a release and every wait an acquire, at a scope that reaches both ends; and what
// is emitted is what the Program says.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

#include "compiler/api/compile.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using namespace ir;

// Two ranks sum their matrices: each sends its own to the other.
const std::string kExchange =
    R"(program sum stage=synced world=2 target=cpu ctas=3 arena=512 symmetric=2048 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2, comm 2..3
  buffer x : f32[4 x 8] input tensor=x
  buffer p : f32[4 x 8] temp offset=0
  buffer q : f32[4 x 8] temp offset=256
  buffer slots : f32[2 x 32] slot rotation=2 offset=0
  buffer y : f32[4 x 8] output tensor=y
  call c0 = matmul op=down kind=matmul (x, p)
  call c1 = put op=y kind=exchange (p, slots)
  call c2 = combine op=y kind=exchange (p, slots, q)
  call c3 = unary op=out kind=silu (q, y)
  event done local
  event arrived peer
  event summed local
  task t0 c0#0 compute sm=0 place=0: read x[0:4, 0:8]; write p[0:4, 0:8]; signal done
  task t2 c1#0 comm sm=2 place=0: read p[0:4, 0:8]; may slots[0:1, 0:32 block=self*1 on=others]; wait done; signal arrived to others
  task t3 c2#0 comm sm=2 place=1: read p[0:4, 0:8] slots[0:2, 0:32]; write q[0:4, 0:8]; wait arrived from others; signal summed
  task t4 c3#0 compute sm=0 place=1: read q[0:4, 0:8]; write y[0:4, 0:8]; wait summed
}
)";

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

TEST_CASE("a scope that reaches both ends is accepted") {
  CHECK(verdict(kExchange) == "");
  for (const char* scope : {"gpu", "sys"})
    CHECK(verdict(with(kExchange, "done local", std::string("done local scope=") + scope)) == "");
  CHECK(verdict(with(kExchange, "arrived peer", "arrived peer scope=sys")) == "");
  // An event of peers that stays on its rank: one GPU.
  std::string own = with(with(kExchange, "arrived to others", "arrived to self"),
                         "arrived from others", "arrived from self");
  own = with(with(own, "on=others", "on=self"), "arrived peer", "arrived peer scope=gpu");
  CHECK(verdict(own) == "");
}

TEST_CASE("an event between ranks that reaches one GPU is refused, with both ends") {
  const std::string reason =
      "scope: event 'arrived' reaches one GPU only (scope=gpu), but exchange 'y' (combine) tile 0 "
      "(rank 0) waits for it from exchange 'y' (put) tile 0 (rank 1): exchange 'y' (combine) "
      "tile 0 (rank 0) may read slots[0:2, 0:32] as it was before exchange 'y' (put) tile 0 (rank "
      "1) wrote there";
  CHECK_THAT(verdict(with(kExchange, "arrived peer", "arrived peer scope=gpu")),
             Contains("p:12:3: error: " + reason));
  // The flags of packets cross too.
  CHECK_THAT(verdict(with(with(kExchange, "rotation=2 offset", "rotation=2 packets offset"),
                          "arrived peer", "arrived packet scope=gpu")),
             Contains(reason));
  // The signal may name its peers or count them from its own rank.
  for (const char* ranks : {"all", "shift(1)"})
    CHECK_THAT(verdict(with(with(with(kExchange, "arrived peer", "arrived peer scope=gpu"),
                                 "to others", std::string("to ") + ranks),
                            "from others", std::string("from ") + ranks)),
               Contains("scope: event 'arrived' reaches one GPU only"));
}

TEST_CASE("a relaxed signal or wait is refused by what may be seen too early") {
  struct Case {
    const char *from, *to, *reason;
  };
  const Case cases[] = {
      {"signal done", "signal relaxed done",
       "scope: matmul 'down' tile 0 signals event 'done' without a release: exchange 'y' (put) "
       "tile 0 (rank 0) may read p[0:4, 0:8] as it was before matmul 'down' tile 0 (rank 0) wrote "
       "there"},
      {"wait done", "wait relaxed done",
       "scope: exchange 'y' (put) tile 0 waits for event 'done' without an acquire: exchange 'y' "
       "(put) tile 0 (rank 0) may read p[0:4, 0:8] as it was before matmul 'down' tile 0 (rank 0) "
       "wrote there"},
      {"signal arrived", "signal relaxed arrived",
       "scope: exchange 'y' (put) tile 0 signals event 'arrived' without a release: exchange 'y' "
       "(combine) tile 0 (rank 1) may read slots[0:2, 0:32]"},
      {"wait arrived", "wait relaxed arrived",
       "scope: exchange 'y' (combine) tile 0 waits for event 'arrived' without an acquire: "
       "exchange 'y' (combine) tile 0 (rank 0) may read slots[0:2, 0:32] as it was before "
       "exchange 'y' (put) tile 0 (rank 1) wrote there"},
  };
  for (const Case& c : cases)
    CHECK_THAT(verdict(with(kExchange, c.from, c.to)), Contains(c.reason));

  // The tasks have no bytes in common, but must keep their order.
  const std::string after = with(kExchange, "write y[0:4, 0:8]; wait summed",
                                 "write y[0:4, 0:8]; wait summed, relaxed done");
  CHECK_THAT(verdict(after),
             Contains("scope: silu 'out' tile 0 waits for event 'done' without an acquire: silu "
                      "'out' tile 0 (rank 0) may not see what came before matmul 'down' tile 0 "
                      "(rank 0) ended"));
  // A signal that nobody waits for is one all the same.
  const std::string unheard =
      with(with(kExchange, "event summed local", "event summed local\n  event x local"),
           "signal arrived", "signal relaxed x, arrived");
  CHECK_THAT(verdict(unheard), Contains("signals event 'x' without a release\n"));
}

TEST_CASE("a writer that doesn't wait for its reader is told as such") {
  const std::string reuse = R"(program reuse stage=synced world=1 target=cpu ctas=2 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  buffer p : f32[4 x 8] temp offset=0
  buffer y : f32[4 x 8] output tensor=y
  buffer z : f32[4 x 8] output tensor=z
  call c0 = f op=first kind=exp (p)
  call c1 = f op=second kind=silu (p, y)
  call c2 = f op=third kind=relu (p)
  call c3 = f op=last kind=tanh (p, z)
  event gone local
  task t0 c0#0 compute sm=0 place=0: write p[0:4, 0:8]
  task t1 c1#0 compute sm=0 place=1: read p[0:4, 0:8]; write y[0:4, 0:8]; signal gone
  task t2 c2#0 compute sm=1 place=0: write p[0:4, 0:8]; wait relaxed gone
  task t3 c3#0 compute sm=1 place=1: read p[0:4, 0:8]; write z[0:4, 0:8]
}
)";
  CHECK_THAT(verdict(reuse),
             Contains("scope: relu 'third' tile 0 waits for event 'gone' without an acquire: relu "
                      "'third' tile 0 may write p[0:4, 0:8] while silu 'second' tile 0 still uses "
                      "it"));
}

// What is emitted for a graph whose Program `edit` has changed; "" and the errors if it is refused.
template <class Edit>
std::string emitted(Diagnostics& diagnostics, Edit edit) {
  const auto graph = frontend::parse_dsl(
      diagnostics.add_file("g",
                           "graph g(world = 2) {\n  input x : f32[64, 1024]\n  a = softmax(x)\n"
                           "  b = broadcast(a, root = 0)\n"
                           "  output y = softmax(b)\n}\n"),
      diagnostics);
  REQUIRE(graph);
  passes::PipelineOptions options;
  options.target = "cpu";
  auto result = passes::run_pipeline(*graph, options, diagnostics);
  REQUIRE(result.ok);
  auto& program = std::get<Program>(result.unit);
  edit(program);
  return api::emit_kernel(*graph, program, options, diagnostics);
}

// Rows of the table of waits and signals whose kind is `kind`, of event `event` if that is given.
int rows(const std::string& kernel, int kind, int event = -1) {
  const size_t begin = kernel.find("SyncRow syncs[]"), end = kernel.find("};", begin);
  REQUIRE(end != std::string::npos);
  int n = 0;
  if (kind == 1)  // the macros for events of peers
    for (size_t at = begin; (at = kernel.find("_(", at)) < end; ++at)
      n += event < 0 || std::stoi(kernel.substr(at + 2)) == event;
  for (size_t at = kernel.find('{', begin) + 1; (at = kernel.find('{', at)) < end; ++at) {
    std::array<int, 6> row{};  // what is left out is zero
    std::istringstream text(kernel.substr(at + 1, kernel.find('}', at) - at - 1));
    std::string number;
    for (size_t i = 0; std::getline(text, number, ','); ++i) row.at(i) = std::stoi(number);
    n += row[2] == kind && (event < 0 || row[0] == event);
  }
  return n;
}

// Without the manifest, which names the Program.
std::string code(const std::string& kernel) { return kernel.substr(kernel.find("namespace maco")); }

TEST_CASE("emitted counters have the scope that the Program says") {
  Diagnostics diagnostics;
  const std::string gpu = emitted(diagnostics, [](Program&) {});
  CHECK_THAT(gpu, Contains("static constexpr bool kSysCounters = false;"));
  CHECK(rows(gpu, 0) > 2);
  CHECK(rows(gpu, 2) == 0);

  const std::string sys = emitted(diagnostics, [](Program& p) {
    const auto first = std::find_if(p.events.begin(), p.events.end(),
                                    [](const Event& e) { return e.kind == EventKind::Local; });
    REQUIRE(first != p.events.end());
    first->scope = Scope::Sys;
  });
  const int uses = rows(gpu, 0, 0);
  REQUIRE(uses >= 2);
  CHECK_THAT(sys, Contains("static constexpr bool kSysCounters = true;"));
  CHECK(rows(sys, 2) == uses);
  CHECK(rows(sys, 0) + rows(sys, 2) == rows(gpu, 0));
  // Signals to peers have sys scope, whatever scope the event has.
  const std::string peers = emitted(diagnostics, [](Program& p) {
    for (Event& e : p.events)
      if (e.kind != EventKind::Local) e.scope = Scope::Sys;
  });
  CHECK(code(peers) == code(gpu));
  CHECK(rows(gpu, 1) > 0);
}

TEST_CASE("nothing relaxed is emitted") {
  Diagnostics waits, signals;
  CHECK(emitted(waits, [](Program& p) {
          for (Task& t : p.tasks)
            for (Wait& w : t.waits) w.relaxed = true;
        }).empty());
  CHECK_THAT(waits.render(),
             Contains("relaxed, which no kernel does") && Contains(" waits for event '"));
  CHECK(emitted(signals, [](Program& p) {
          for (Task& t : p.tasks)
            for (Signal& s : t.signals) s.relaxed = true;
        }).empty());
  CHECK_THAT(signals.render(), Contains("softmax 'a' tile 0 signals event '"));
}

}  // namespace
}  // namespace maco::test
