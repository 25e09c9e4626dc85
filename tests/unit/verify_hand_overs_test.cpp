// Collectives that leave the kernel: what may stand between a hand-over and what takes it back.
#include <string>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

// Two ranks sum x, beside each other CTA 1 hands over and CTA 0 computes.
const std::string kHanded =
    R"(program handed stage=synced world=2 target=cpu ctas=2 arena=512 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1, comm 1..2
  buffer x : f32[1 x 8] input tensor=x
  buffer p : f32[1 x 8] temp offset=0
  buffer q : f32[1 x 8] temp offset=256
  buffer wires : f32[2 x 8] slot rotation=2 packets wire offset=0
  buffer y : f32[1 x 8] output tensor=y
  call c0 = unary op=p kind=exp (x, p)
  call c1 = hand_over op=q kind=allreduce (p, wires, q) moves copy(0 -> 1)
  call c2 = take_back op=q kind=allreduce (p, wires, q) moves reduce sum(0, 1 -> 2)
  call c3 = unary op=y kind=exp (q, y)
  collective q allreduce in=p out=q
  event p local
  event q.arrived packet
  event q local
  task t0 c0#0 compute sm=0 place=0: read x[0:1, 0:8]; write p[0:1, 0:8]; signal p
  task t1 c1#0 comm sm=1 place=0: read p[0:1, 0:8]; may wires[0:1, 0:8 block=self*1 on=others] q[0:1, 0:8]; wait p; signal q.arrived to others
  task t2 c2#0 comm sm=1 place=1: read p[0:1, 0:8] wires[0:1, 0:8 block=others*1]; write q[0:1, 0:8]; wait q.arrived from others; signal q
  task t3 c3#0 compute sm=0 place=1: read q[0:1, 0:8]; write y[0:1, 0:8]; wait q
}
)";

std::string verdict(const std::string& text) {
  ir::Diagnostics diagnostics;
  const auto program = ir::parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  CHECK(ir::print(*program) == text);
  verify::verify(*program, diagnostics);
  return diagnostics.render();
}
std::string changed(const std::string& from, const std::string& to) {
  return with(kHanded, from, to);
}

}  // namespace

TEST_CASE("what is handed over and taken back at once is accepted") {
  CHECK(verdict(kHanded) == "");
}

TEST_CASE("a wire has no memory") {
  CHECK_THAT(verdict(changed("arena=512 {", "arena=512 symmetric=256 {")),
             Contains("wire 'wires' lies at 0, but symmetric memory has 256 bytes"));
  CHECK_THAT(verdict(changed("packets wire", "wire")),
             Contains("is a wire, but no slot with packets"));
}

TEST_CASE("the task behind a hand-over takes it back") {
  // Another on the same CTA between the two.
  std::string text = with(changed("sm=1 place=1", "sm=1 place=2"), "compute 0..1, comm 1..2",
                          "comm 0..1, comm 1..2");
  text = with(with(text, "compute sm=0 place=0", "comm sm=0 place=0"), "compute sm=0 place=1",
              "comm sm=1 place=1");
  text = with(text, "; wait q\n", "\n");
  CHECK_THAT(verdict(text), Contains("comes after allreduce 'q' (hand_over) tile 0, but takes back "
                                     "what another op hands over"));
  // On another CTA.
  text = with(changed("ctas=2", "ctas=3"), "comm 1..2", "comm 1..3");
  text = with(text, "sm=1 place=1", "sm=2 place=0");
  CHECK_THAT(verdict(text),
             Contains("hand-over: no task after allreduce 'q' (hand_over) tile 0 takes "
                      "back what it hands over"));
  CHECK_THAT(verdict(changed("comm sm=1 place=1:", "comm sm=1 place=1 ranks=0x1:")),
             Contains("signals event 'q.arrived' to rank 1, where nobody waits for it"));
}

TEST_CASE("what is taken back waits for nothing that comes between") {
  // It may wait for what the hand-over comes after,
  CHECK(verdict(changed("wait q.arrived from others; signal q",
                        "wait q.arrived from others, p; signal q")) == "");
  // but not for a task that the hand-over tells of: here one that writes what is handed over.
  std::string text =
      with(changed("event q local", "event q local\n  event handed local\n  event met local"),
           "wait p; signal q.arrived to others", "wait p; signal q.arrived to others, handed");
  text = with(text, "wait q.arrived from others", "wait q.arrived from others, met");
  text = with(with(text, "compute sm=0 place=1", "compute sm=0 place=2"), "  task t2 ",
              "  task t2 c4#0 compute sm=0 place=1: write p[0:1, 0:8]; wait handed; signal met\n"
              "  task t3 ");
  text = with(with(text, "  task t3 c3", "  task t4 c3"), "  collective q",
              "  call c4 = unary op=other kind=exp (x, p)\n  collective q");
  CHECK_THAT(verdict(text), Contains("hand-over: allreduce 'q' (take_back) tile 0 comes after "
                                     "allreduce 'q' (hand_over) tile 0, but waits for 'met', which "
                                     "comes between the two"));
}

TEST_CASE("nor by way of another rank that hands over later") {
  // In a broadcast, rank 0 hands over and tells a task that reads the result; rank 1 hands over
  // after that.
  const std::string text =
      R"(program late stage=synced world=2 target=cpu ctas=2 arena=256 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..1, comm 1..2
  buffer x : f32[1 x 8] input tensor=x
  buffer y : f32[1 x 8] state tensor=y
  buffer z : f32[1 x 8] temp offset=0
  buffer wires : f32[2 x 8] slot rotation=2 packets wire offset=0
  buffer met : u8[2 x 1] slot rotation=2 packets wire offset=512
  call c0 = hand_over op=b kind=broadcast (x, wires, y, met) moves copy(0 -> 1)
  call c1 = take_back op=b kind=broadcast (x, wires, y, met) moves copy(0 -> 1)
  call c2 = hand_over op=b kind=broadcast (x, wires, y, met)
  call c3 = take_back op=b kind=broadcast (x, wires, y, met) moves copy(0 -> 1)
  call c4 = unary op=z kind=exp (y, z)
  collective b broadcast in=x out=y
  event arrived packet
  event begun local
  event seen peer
  task t0 c0#0 comm sm=1 place=0 ranks=0x1: read x[0:1, 0:8]; may wires[0:1, 0:8 block=self*1 on=others] y[0:1, 0:8] met[0:1, 0:1 block=self*1 on=others]; signal arrived to others, begun
  task t1 c4#0 compute sm=0 place=0 ranks=0x1: read y[0:1, 0:8]; write z[0:1, 0:8]; wait begun; signal seen to rank(1)
  task t2 c1#0 comm sm=1 place=1 ranks=0x1: read x[0:1, 0:8]; write y[0:1, 0:8]; read met[0:1, 0:1 block=others*1]; wait arrived from others
  task t3 c2#0 comm sm=1 place=2 ranks=0x2: read x[0:1, 0:8]; may y[0:1, 0:8] met[0:1, 0:1 block=self*1 on=others]; wait seen from rank(0); signal arrived to others
  task t4 c3#0 comm sm=1 place=3 ranks=0x2: read wires[0:1, 0:8 block=rank(0)*1]; write y[0:1, 0:8]; read x[0:1, 0:8] met[0:1, 0:1 block=others*1]; wait arrived from others
}
)";
  const std::string said = verdict(text);
  CHECK_THAT(said, Contains("which comes between the two"));
}

TEST_CASE("what is handed over is held until it is back") {
  CHECK_THAT(
      verdict(changed("wires[0:1, 0:8 block=self*1 on=others] q[0:1, 0:8]; wait p",
                      "wires[0:1, 0:8 block=self*1 on=others] q[0:1, 0:8] y[0:1, 0:8]; wait p")),
      Contains("but does not write all of 'y' that is handed over"));
}

}  // namespace maco::test
