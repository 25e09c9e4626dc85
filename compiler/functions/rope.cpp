// rope: pairs of elements turn by an angle that grows with the row's position. rope_tables: by one
// whose cosine and sine are operands. rope_sines: sines and cosines of rope's angles, for products
// that turn heads.
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
      {.name = "rope_tables",
       .params = {dtype("X"), dtype("Y"), dtype("T"), value("rows"), value("limit"),
                  integer("x_cols"), integer("x_begin"), integer("H"), integer("D"), integer("BR"),
                  integer("table_cols"), flag("interleaved"), flag("from_positions"),
                  value("position")},
       .operands = {reads("x", "X"), reads("cosines", "T"), reads("sines", "T"),
                    reads("positions", "i32", Count::Optional), writes("y", "Y")},
       .source = {{"rows.cuh", "ops/rope.cuh"}},
       .work = unaided_work},
      {.name = "rope_sines",
       .params = {value("rows"), integer("D"), integer("BR"), value("position"), table("turns")},
       .operands = {writes("y", "f32")},
       .source = {{"rows.cuh", "ops/rope.cuh"}},
       .work = unaided_work}};
}

}  // namespace maco::functions
