// strided_copy: a box of elements from one set of strides to another.
#include <string>

#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> strided_copy_functions() {
  Function f{.name = "strided_copy",
             .params = {dtype("X"), dtype("Y"), value("rows"), value("in_offset"),
                        integer("in_unit"), value("out_offset"), integer("out_unit"), integer("V"),
                        integer("S3"), integer("turned"), integer("VT")},
             .operands = {reads("x", "X"), writes("y", "Y")},
             .source = {{"vectors.cuh", "rows.cuh", "ops/strided_copy.cuh"}},
             .shared_over = [](const CallView&) { return std::vector<std::string>{"in_offset"}; },
             .work =
                 [](const CallView& c, const ir::Task& task, const cost::Machine& machine) {
                   return cost::unaided(cost::moving(c.program(), task, machine), machine);
                 }};
  const auto four = [&](const std::string& prefix, int from) {
    for (int i = from; i < 4; ++i) f.params.push_back(integer(prefix + std::to_string(i)));
  };
  four("E", 1);
  four("B", 0);
  four("in", 0);
  four("out", 0);
  return {f};
}

}  // namespace maco::functions
