// rope: pairs of elements turn by an angle that grows with the row's position. rope_sines: sines
// and cosines of those angles, for products that turn heads.
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
       .work = unaided_work},
      {.name = "rope_sines",
       .params = {value("rows"), integer("D"), integer("BR"), value("position"), table("turns")},
       .operands = {writes("y", "f32")},
       .source = {{"rows.cuh", "ops/rope.cuh"}},
       .work = unaided_work}};
}

}  // namespace maco::functions
