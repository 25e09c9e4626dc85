#include "compiler/cost/machine.h"

namespace maco::cost {

// Rates: NVIDIA's data sheets, but h200's and its links are measured (docs/benchmarks). They steer choices, never results.
const std::vector<Machine>& all_machines() {
  constexpr int64_t kib = 1024;
  static const std::vector<Machine> machines = {
      {"sm_90a", "NVIDIA H200", 90, 132, 160 * kib, 16 * kib, 8, 16, 790e12, 4.5e12, 370e9},
      {"sm_100a", "NVIDIA B200", 100, 148, 160 * kib, 16 * kib, 8, 16, 2000e12, 7.7e12, 750e9},
      {"sm_120", "NVIDIA RTX PRO 6000 Blackwell", 120, 188, 96 * kib, 16 * kib, 4, 16, 400e12, 1.8e12, 50e9},
      {"sm_89", "NVIDIA L40S", 89, 142, 96 * kib, 16 * kib, 4, 16, 360e12, 0.86e12, 25e9},
      {"sm_86", "NVIDIA A40", 86, 84, 96 * kib, 16 * kib, 4, 8, 150e12, 0.69e12, 50e9},
      {"sm_80", "NVIDIA A100", 80, 108, 160 * kib, 16 * kib, 8, 12, 312e12, 1.9e12, 250e9},
      {"sm_75", "NVIDIA T4", 75, 40, 64 * kib, 8 * kib, 4, 4, 65e12, 0.3e12, 12e9},
      {"sm_70", "NVIDIA V100", 70, 80, 96 * kib, 16 * kib, 4, 8, 125e12, 0.9e12, 130e9},
      {"cpu", "the CPU target", 0, 8, 64 * kib, 4 * kib, 3, 2, 50e9, 20e9, 10e9},
  };
  return machines;
}

const Machine* find_machine(std::string_view target) {
  for (const Machine& m : all_machines())
    if (m.target == target) return &m;
  return nullptr;
}

}  // namespace maco::cost
