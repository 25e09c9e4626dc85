// embedding: row ids[i] of the table becomes row i of y.
#include "compiler/functions/families.h"

namespace maco::functions {

std::vector<Function> embedding_functions() {
  return {{.name = "embedding",
           .params = {dtype("X"), dtype("Y"), value("rows"), value("limit"), integer("N"),
                      integer("BM"), integer("BN"), integer("V")},
           .operands = {reads("table", "X"), reads("ids", "i32"), writes("y", "Y")},
           .source = {{"vectors.cuh", "ops/embedding.cuh"}},
           .work = [](const CallView& c, const ir::Task& task, const cost::Machine& machine) {
             return cost::moving(c.program(), task, machine);
           }}};
}

}  // namespace maco::functions
