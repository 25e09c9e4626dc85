// elementwise: y = body(x0, x1, ...), element by element.
#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> elementwise_functions() {
  return {{.name = "elementwise",
           .params = {dtype("Y"), value("rows"), integer("N"), integer("BM"), integer("BN"),
                      integer("V"), flag("runs"), body("body")},
           .operands = {reads("x", "", Count::Many), writes("y", "Y")},
           .source = {{"vectors.cuh", "ops/elementwise.cuh"}}}};
}

}  // namespace maco::functions
