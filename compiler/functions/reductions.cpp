// reduce and argmax: one result for each row.
#include "compiler/functions/families.h"

namespace maco::functions {

namespace {

// Each thread holds what it has loaded to the best so far, one after the other: 2,048 elements of a
// row take 2.4 us on an H200.
cost::Work argmax_work(const CallView& call, const ir::Task& task, const cost::Machine& machine) {
  cost::Work work = unaided_work(call, task, machine);
  if (machine.arch != 0) work.fixed_microseconds = 2;
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
      .operands = {reads("x", "X"), writes("values", "A"), writes("places", "i32")},
      .source = argmax.source,
      .scratch_bytes = argmax.scratch_bytes,
      .work = argmax_work};
  Function merge{.name = "argmax_merge",
                 .params = {dtype("A"), dtype("Y"), value("rows"), integer("parts"), integer("BR")},
                 .operands = {reads("values", "A"), reads("places", "i32"), writes("y", "Y")},
                 .source = argmax.source};
  return {reduce, argmax, part, merge};
}

}  // namespace maco::functions
