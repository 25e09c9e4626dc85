#include "compiler/cost/model.h"

#include <algorithm>

namespace maco::cost {

namespace {

// Of one of `sms` SMs, a second. On GPUs what the products of ops/matmul.cuh reach.
double multiply_adds(const Machine& machine, int32_t sms) {
  return machine.arch == 0 ? machine.flops / 2 / sms : 0.9e11;
}

}  // namespace

Work streaming(const ir::Program& program, const ir::Task& task) {
  Work work{.fixed_microseconds = 0.7};
  for (const ir::Access& a : task.accesses) {
    const ir::Region& r = a.region;
    work.bytes +=
        static_cast<double>((r.r1 - r.r0) * (r.c1 - r.c0) * ir::size_of(program[r.buffer].dtype));
  }
  return work;
}

double microseconds(const Work& work, const Machine& machine, int32_t sms) {
  const double arithmetic = work.multiply_adds / multiply_adds(machine, sms);
  const double traffic = work.bytes / (machine.memory_rate / sms);
  return std::max(arithmetic, traffic) * 1e6 + work.fixed_microseconds;
}

}  // namespace maco::cost
