// rmsnorm and layernorm of rows.
#include "compiler/functions/families.h"

namespace maco::functions {

cost::Work unaided_work(const CallView& call, const ir::Task& task, const cost::Machine& machine) {
  return cost::unaided(cost::streaming(call.program(), task, machine), machine);
}

std::vector<Function> norm_functions() {
  return {{.name = "rmsnorm",
           .params = {dtype("X"), dtype("W"), dtype("Y"), value("rows"), integer("N"),
                      integer("BR"), number("eps")},
           .operands = {reads("x", "X"), reads("w", "W"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/rmsnorm.cuh"}},
           .work = unaided_work},
          {.name = "layernorm",
           .params = {dtype("X"), dtype("W"), dtype("B"), dtype("Y"), value("rows"), integer("N"),
                      integer("BR"), number("eps")},
           .operands = {reads("x", "X"), reads("w", "W"), reads("b", "B"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/layernorm.cuh"}},
           .work = unaided_work}};
}

}  // namespace maco::functions
