// rmsnorm and layernorm of rows.
#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> norm_functions() {
  return {{.name = "rmsnorm",
           .params = {dtype("X"), dtype("W"), dtype("Y"), value("rows"), integer("N"),
                      integer("BR"), number("eps")},
           .operands = {reads("x", "X"), reads("w", "W"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/rmsnorm.cuh"}}},
          {.name = "layernorm",
           .params = {dtype("X"), dtype("W"), dtype("B"), dtype("Y"), value("rows"), integer("N"),
                      integer("BR"), number("eps")},
           .operands = {reads("x", "X"), reads("w", "W"), reads("b", "B"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/layernorm.cuh"}}}};
}

}  // namespace maco::functions
