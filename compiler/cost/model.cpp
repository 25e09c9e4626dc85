#include "compiler/cost/model.h"

#include <algorithm>

namespace maco::cost {

namespace {

// Of the ordinary cores' rate, what the products of ops/matmul.cuh reach on an H200.
constexpr double kReached = 0.355;

// Seconds from a store to the wait on another GPU that sees it, measured between H200s.
constexpr double kHop = 1.3e-6;

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

double seconds(const Route& route, const Machine& machine) {
  return route.hops * kHop + route.link_bytes / machine.link_rate;
}

double microseconds(const Work& work, const Machine& machine, int32_t sms) {
  const double arithmetic = work.multiply_adds / (kReached * machine.f32_flops / 2 / sms);
  const double matrices = work.matrix_multiply_adds / (machine.flops / 2 / sms);
  const double traffic = work.bytes / (machine.memory_rate / sms);
  return std::max({arithmetic, matrices, traffic}) * 1e6 + work.fixed_microseconds;
}

}  // namespace maco::cost
