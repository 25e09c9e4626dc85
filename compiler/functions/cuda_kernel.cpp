#include "compiler/functions/cuda_kernel.h"

#include "compiler/functions/families.h"

namespace maco::functions {

int64_t cuda_slot_bytes(int64_t static_shared, int64_t dynamic_shared) {
  constexpr int64_t head = 256, align = 128;  // as runtime/device/cuda/slots.cuh
  const auto up = [](int64_t n) { return (n + align - 1) / align * align; };
  return head + up(static_shared) + up(dynamic_shared);
}

std::vector<Function> cuda_functions() {
  return {
      {.name = "cuda_kernel",
       .params = {unit("unit"), value("grid_x"), value("grid_y"), value("grid_z"),
                  integer("planned_x"), integer("planned_y"), integer("blocks"), integer("each"),
                  integer("slots"), integer("slot_bytes"), values("arg")},
       .operands =
           {{.name = "tensors", .access = Access::ReadWrite, .count = Count::Many, .dtype = ""}},
       .source = {{"cuda/slots.cuh", "ops/cuda_kernel.cuh"}},
       .calls_functions = true,
       .scratch_bytes = [](const CallView& c) {
         return c.integer("slots") * c.integer("slot_bytes");
       }}};
}

}  // namespace maco::functions
