#include "compiler/functions/cuda_kernel.h"

#include <algorithm>

#include "compiler/functions/families.h"

namespace maco::functions {
namespace {

constexpr const char* kFunction = "cuda_kernel";

}  // namespace

int64_t cuda_slot_bytes(int64_t static_shared, int64_t dynamic_shared) {
  constexpr int64_t head = 256, align = 128;  // as runtime/device/cuda/slots.cuh
  const auto up = [](int64_t n) { return (n + align - 1) / align * align; };
  return head + up(static_shared) + up(dynamic_shared);
}

std::vector<bool> users_temporaries(const ir::Program& program) {
  std::vector<bool> users(program.buffers.size());
  if (program.target != "cpu") return users;
  for (const ir::Call& call : program.calls)
    for (const ir::BufferId b : call.operands)
      if (call.function == kFunction && program[b].kind == ir::BufferKind::Temp)
        users[index(b)] = true;
  return users;
}

namespace {

// Blocks of a task that don't fit side by side run in rounds. A round took 0.8 us, measured with
// twelve kernels (docs/benchmarks/logs/users-kernels-h200.txt). For tensors of which the op doesn't
// say what blocks touch, the task counts with its share of the tensor.
cost::Work blocks_work(const CallView& c, const ir::Task& task, const cost::Machine& machine) {
  constexpr double microseconds_a_round = 0.8;
  const ir::Program& program = c.program();
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t each = std::max<int64_t>(c.integer("each"), 1),
                tasks = std::max<int64_t>(up(c.integer("blocks"), each), 1);
  cost::Work work = cost::streaming(program, task, machine);
  for (const ir::Access& a : task.accesses) {
    const ir::Region& r = a.region;
    const ir::Buffer& b = program[r.buffer];
    if (r.r1 - r.r0 < b.max_rows || r.c1 - r.c0 < b.cols) continue;
    const double bytes = static_cast<double>(cost::typical_rows(program, r)) *
                         static_cast<double>(b.cols * ir::size_of(b.dtype));
    work.bytes -= bytes * (1 - 1 / static_cast<double>(tasks));
  }
  const int64_t rounds = up(each, std::max<int64_t>(c.integer("slots"), 1));
  if (machine.arch != 0)
    work.fixed_microseconds += microseconds_a_round * static_cast<double>(rounds);
  return work;
}

}  // namespace

std::vector<Function> cuda_functions() {
  return {
      {.name = kFunction,
       .params = {unit("unit"), value("grid_x"), value("grid_y"), value("grid_z"),
                  integer("planned_x"), integer("planned_y"), integer("blocks"), integer("each"),
                  integer("slots"), integer("slot_bytes"), values("arg")},
       .operands =
           {{.name = "tensors", .access = Access::ReadWrite, .count = Count::Many, .dtype = ""}},
       .source = {{"cuda/slots.cuh", "ops/cuda_kernel.cuh"}},
       .calls_functions = true,
       .scratch_bytes =
           [](const CallView& c) { return c.integer("slots") * c.integer("slot_bytes"); },
       .users_block_bytes = [](const CallView& c) { return c.integer("slot_bytes"); },
       .work = blocks_work}};
}

}  // namespace maco::functions
