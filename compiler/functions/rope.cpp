// rope rotates pairs of elements by an angle that grows with the row's position. rope_frequencies
// takes the frequencies from an operand. rope_tables takes the cosines and sines from operands.
// rope_sines computes the sines and cosines of rope's angles for matmuls that rotate heads.
#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> rope_functions() {
  const std::vector<ParamSpec> heads = {
      dtype("X"),         dtype("Y"),          value("rows"),          integer("x_cols"),
      integer("x_begin"), integer("H"),        integer("D"),           integer("R"),
      integer("BR"),      flag("interleaved"), flag("from_positions"), value("position"),
      number("factor")};
  const auto with = [&](std::vector<ParamSpec> more) {
    std::vector<ParamSpec> all = heads;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Source source = {{"rows.cuh", "ops/rope.cuh"}};
  return {
      {.name = "rope",
       .params = with({table("turns")}),
       .operands = {reads("x", "X"), reads("positions", "i32", Count::Optional), writes("y", "Y")},
       .source = source,
       .work = unaided_work},
      {.name = "rope_frequencies",
       .params = heads,
       .operands = {reads("x", "X"), reads("frequencies", "f32"),
                    reads("positions", "i32", Count::Optional), writes("y", "Y")},
       .source = source,
       .work = unaided_work},
      {.name = "rope_tables",
       .params = with({dtype("T"), value("limit"), integer("table_cols")}),
       .operands = {reads("x", "X"), reads("cosines", "T"), reads("sines", "T"),
                    reads("positions", "i32", Count::Optional), writes("y", "Y")},
       .source = source,
       .work = unaided_work},
      {.name = "rope_sines",
       .params = {value("rows"), integer("D"), integer("BR"), value("position"), flag("by_radians"),
                  number("factor"), table("turns")},
       .operands = {reads("frequencies", "f32", Count::Optional), writes("y", "f32")},
       .source = source,
       .work = unaided_work}};
}

}  // namespace maco::functions
