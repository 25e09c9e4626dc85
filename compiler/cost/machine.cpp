#include "compiler/cost/machine.h"

namespace maco::cost {

namespace {

// Of the device code, whatever the graph: kThreads of runtime/device/words.cuh and kCtaMemoryBytes
// of abi.cuh. Emitted code asserts that they are what the Program says.
constexpr int32_t kCtaThreads = 288;
constexpr int64_t kCtaScratchBytes = 18432;

// What the compiler gives a thread at most when CTAs of `threads` are launched one an SM: an SM
// hands out registers a warp at a time, eight a thread at a time.
int32_t registers_of(const Machine& machine, int32_t threads) {
  constexpr int32_t most = 255, step = 8, warp = 32;
  const int32_t warps = (threads + warp - 1) / warp;
  const int32_t share = machine.registers / (warps * warp) / step * step;
  return share < most ? share : most;
}

}  // namespace

ir::Resources uses_of(const Machine& machine, bool paged) {
  ir::Resources uses;
  uses.threads = kCtaThreads;
  uses.registers = registers_of(machine, kCtaThreads);
  uses.scratch_bytes = kCtaScratchBytes;
  if (paged) {
    uses.pages = machine.pages;
    uses.page_bytes = machine.page_bytes;
  }
  return uses;
}

ir::Limits limits_of(const Machine& machine, int64_t sms) {
  ir::Limits limits;
  limits.sms = static_cast<int32_t>(sms);
  limits.threads = machine.threads;
  limits.registers = machine.registers;
  limits.shared_bytes = machine.shared_bytes;
  return limits;
}

// Threads, registers and shared memory: NVIDIA's tables of compute capabilities; those of the CPU
// target are a small GPU's, since its kernels also run on one. Rates: NVIDIA's data sheets, but
// h200's and its links are measured (docs/benchmarks). They steer choices, never results.
const std::vector<Machine>& all_machines() {
  constexpr int kib = 1024;
  static const std::vector<Machine> machines = {
      {"sm_90a", "NVIDIA H200", 90, 132, 1024, 64 * kib, 227 * kib, 16 * kib, 8, 16, 790e12, 4.5e12,
       370e9},
      {"sm_100a", "NVIDIA B200", 100, 148, 1024, 64 * kib, 227 * kib, 16 * kib, 8, 16, 2000e12,
       7.7e12, 750e9},
      {"sm_120", "NVIDIA RTX PRO 6000 Blackwell", 120, 188, 1024, 64 * kib, 99 * kib, 16 * kib, 4,
       16, 400e12, 1.8e12, 50e9},
      {"sm_89", "NVIDIA L40S", 89, 142, 1024, 64 * kib, 99 * kib, 16 * kib, 4, 16, 360e12, 0.86e12,
       25e9},
      {"sm_86", "NVIDIA A40", 86, 84, 1024, 64 * kib, 99 * kib, 16 * kib, 4, 8, 150e12, 0.69e12,
       50e9},
      {"sm_80", "NVIDIA A100", 80, 108, 1024, 64 * kib, 163 * kib, 16 * kib, 8, 12, 312e12, 1.9e12,
       250e9},
      {"sm_75", "NVIDIA T4", 75, 40, 1024, 64 * kib, 64 * kib, 8 * kib, 4, 4, 65e12, 0.3e12, 12e9},
      {"sm_70", "NVIDIA V100", 70, 80, 1024, 64 * kib, 96 * kib, 16 * kib, 4, 8, 125e12, 0.9e12,
       130e9},
      {"cpu", "the CPU target", 0, 8, 1024, 64 * kib, 64 * kib, 4 * kib, 3, 2, 50e9, 20e9, 10e9},
  };
  return machines;
}

const Machine* find_machine(std::string_view target) {
  for (const Machine& m : all_machines())
    if (m.target == target) return &m;
  return nullptr;
}

}  // namespace maco::cost
