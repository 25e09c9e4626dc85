// A small Program that the tests of the verifier take apart.
#pragma once

#include <string>

#include "ir/program_text.h"
#include "tests/catch.h"

namespace maco::test {

// Two ranks sum their halves of a matmul: each sends its own to the other (as a kind of op of its
// own: what an allreduce has to deliver would have to be stated). CTA 0 and 1 compute, CTA
// 2 communicates.
inline const std::string kSum =
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
  event done local count=2
  event arrived peer
  event summed local
  task t0 c0#0 compute sm=0 place=0: read x[0:4, 0:8]; write p[0:4, 0:4]; signal done
  task t1 c0#1 compute sm=1 place=0: read x[0:4, 0:8]; write p[0:4, 4:8]; signal done
  task t2 c1#0 comm sm=2 place=0: read p[0:4, 0:8]; may slots[0:1, 0:32 block=self*1 on=others]; wait done; signal arrived to others
  task t3 c2#0 comm sm=2 place=1: read p[0:4, 0:8] slots[0:2, 0:32]; write q[0:4, 0:8]; wait arrived from others; signal summed
  task t4 c3#0 compute sm=0 place=1: read q[0:4, 0:8]; write y[0:4, 0:8]; wait summed
}
)";

// Two tiles send halves of a row. One task reads both halves, another only the first.
inline const std::string kSent =
    R"(program sent stage=synced world=1 target=cpu ctas=4 arena=512 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..4
  buffer x : bf16[1 x 64] input tensor=x
  buffer row : bf16[1 x 64] temp packets offset=0
  buffer t : bf16[1 x 64] temp offset=256
  buffer y : bf16[1 x 64] output tensor=y
  buffer z : bf16[1 x 32] output tensor=z
  call c0 = matmul op=row kind=matmul (x, row)
  call c1 = matmul op=y kind=matmul (row, y)
  call c2 = matmul op=z kind=matmul (row, z)
  event row.sent hint count=2
  event row.sent.0 hint
  task t0 c0#0 compute sm=0 place=0: read x[0:1, 0:64]; write row[0:1, 0:32]; signal row.sent, row.sent.0
  task t1 c0#1 compute sm=1 place=0: read x[0:1, 0:64]; write row[0:1, 32:64]; signal row.sent
  task t2 c1#0 compute sm=2 place=0: read row[0:1, 0:64]; write y[0:1, 0:64]; wait row.sent
  task t3 c2#0 compute sm=3 place=0: read row[0:1, 0:32]; write z[0:1, 0:32]; wait row.sent.0
}
)";

/// `text` with the first `from` replaced, which has to be there.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// The exchange by packets, of a tile that lies beyond the actual rows where n is 0: then nobody
/// polls, and a fast rank may be two launches ahead.
inline std::string skipped_packets() {
  std::string text = with(kSum, "rotation=2 offset", "rotation=2 packets offset");
  text = with(text, "arrived peer", "arrived packet");
  text = with(text, "  buffer x",
              "  dim n in [0, 4]\n  value %0 = n in [0, 4]\n  buffer d : f32[n max 4 x 8] input\n  "
              "buffer x");
  return with(text, "comm sm=2 place=1: read ", "comm sm=2 place=1: read d[0:4, 0:8] ");
}

/// The Program of a text that parses.
inline ir::Program parse_text(const std::string& text) {
  ir::Diagnostics diagnostics;
  auto program = ir::parse_program(diagnostics.add_file("p", text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(program);
  return *program;
}

}  // namespace maco::test
