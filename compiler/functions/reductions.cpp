// reduce and argmax: one result for each row.
#include <algorithm>

#include "compiler/functions/families.h"

namespace maco::functions {

namespace {

// Each thread compares what it has loaded with its best so far, one element after the other. 2,048
// elements of a row take 2.4 us on an H200; about half a microsecond of that (estimated) doesn't
// depend on the number of elements.
cost::Work argmax_work(const CallView& call, const ir::Task& task, const cost::Machine& machine) {
  cost::Work work = unaided_work(call, task, machine);
  if (machine.arch == 0 || task.accesses.empty()) return work;
  const ir::Region& row = task.accesses.front().region;
  work.fixed_microseconds =
      0.5 + 1.5 * std::min<double>(1, static_cast<double>(row.c1 - row.c0) / 2048);
  return work;
}

}  // namespace

std::vector<Function> reduction_functions() {
  const std::vector<ParamSpec> rows = {dtype("X"),    dtype("Y"),   value("rows"),
                                       value("cols"), integer("N"), integer("BR")};
  Function reduce{.name = "reduce",
                  .params = rows,
                  .operands = {reads("x", "X"), writes("y", "Y")},
                  .source = {{"rows.cuh", "ops/reduce.cuh"}},
                  .work = unaided_work};
  reduce.params.push_back(word("kind", "ops::ReduceKind", {"sum", "mean", "max"}));
  Function argmax{.name = "argmax",
                  .params = rows,
                  .operands = {reads("x", "X"), writes("y", "Y")},
                  .source = {{"rows.cuh", "ops/argmax.cuh"}},
                  .work = argmax_work};
  argmax.scratch_bytes = [](const CallView&) { return int64_t{8 * 8}; };  // a place for each warp
  Function part{
      .name = "argmax_part",
      .params = {dtype("X"), dtype("A"), value("rows"), integer("N"), integer("BN"), integer("BR")},
      .operands = {reads("x", "X"), in_packets(writes("values", "A")),
                   in_packets(writes("places", "i32"))},
      .source = argmax.source,
      .follows = true,
      .takes_packets = [](const CallView&, size_t i) { return i > 0; },
      .scratch_bytes = argmax.scratch_bytes,
      .work = argmax_work};
  Function merge{.name = "argmax_merge",
                 .params = {dtype("A"), dtype("Y"), value("rows"), integer("parts"), integer("BR")},
                 .operands = {in_packets(reads("values", "A")), in_packets(reads("places", "i32")),
                              writes("y", "Y")},
                 .source = argmax.source,
                 // A lane polls all of its packets at once.
                 .takes_packets = [](const CallView& c,
                                     size_t i) { return i < 2 && c.integer("parts") <= 2048; },
                 .scratch_bytes = argmax.scratch_bytes};
  return {reduce, argmax, part, merge};
}

}  // namespace maco::functions
