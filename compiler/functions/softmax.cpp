// softmax of rows.
#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> softmax_functions() {
  return {{.name = "softmax",
           .params = {dtype("X"), dtype("Y"), value("rows"), value("cols"), integer("N"),
                      integer("BR")},
           .operands = {reads("x", "X"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/softmax.cuh"}},
           .work = unaided_work}};
}

}  // namespace maco::functions
