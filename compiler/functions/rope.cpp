// rope: pairs of elements turn by an angle that grows with the row's position.
#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> rope_functions() {
  return {
      {.name = "rope",
       .params = {dtype("X"), dtype("Y"), value("rows"), integer("x_cols"), integer("x_begin"),
                  integer("H"), integer("D"), integer("BR"), flag("interleaved"),
                  flag("from_positions"), value("position"), table("turns")},
       .operands = {reads("x", "X"), reads("positions", "i32", Count::Optional), writes("y", "Y")},
       .source = {{"rows.cuh", "ops/rope.cuh"}},
       .work = unaided_work}};
}

}  // namespace maco::functions
