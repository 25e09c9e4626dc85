#include "compiler/cost/model.h"

#include <algorithm>

namespace maco::cost {

namespace {

// How many elements of a region there are in a typical launch.
double typical_elements(const ir::Program& program, const ir::Region& r) {
  return static_cast<double>(typical_rows(program, r) * (r.c1 - r.c0));
}

double element_bytes(const ir::Program& program, const ir::Region& r) {
  return static_cast<double>(ir::size_of(program[r.buffer].dtype));
}

Work task_of(double bytes, const Machine& machine) {
  return {.bytes = bytes, .fixed_microseconds = machine.task};
}

}  // namespace

int64_t typical_rows(const ir::Program& program, const ir::Region& region) {
  const ir::Buffer& b = program[region.buffer];
  const int64_t rows = ir::typical_value(
      b.rows, [&](std::string_view n) { return program.typical_of(n); }, {0, b.max_rows});
  return std::clamp<int64_t>(rows - region.r0, 0, region.r1 - region.r0);
}

Work streaming(const ir::Program& program, const ir::Task& task, const Machine& machine) {
  double bytes = 0;
  for (const ir::Access& a : task.accesses)
    bytes += typical_elements(program, a.region) * element_bytes(program, a.region);
  return task_of(bytes, machine);
}

Work unaided(Work work, const Machine& machine) {
  if (machine.arch != 0) work.bytes *= 3;
  return work;
}

Work moving(const ir::Program& program, const ir::Task& task, const Machine& machine) {
  if (task.accesses.empty()) return task_of(0, machine);
  const ir::Region &from = task.accesses.front().region, &to = task.accesses.back().region;
  const double elements = std::min(typical_elements(program, from), typical_elements(program, to));
  return task_of(elements * (element_bytes(program, from) + element_bytes(program, to)), machine);
}

double seconds(const Route& route, const Machine& machine) {
  return route.hops * machine.hop * 1e-6 + route.link_bytes / machine.link_rate;
}

double microseconds(const Work& work, const Machine& machine, int32_t sms) {
  const double arithmetic =
      work.multiply_adds / (machine.f32_reached * machine.f32_flops / 2 / sms);
  const double matrices = work.matrix_multiply_adds / (machine.flops / 2 / sms);
  const double traffic = work.bytes / (machine.memory_rate / sms);
  return std::max({arithmetic, matrices, traffic}) * 1e6 + work.fixed_microseconds;
}

}  // namespace maco::cost
