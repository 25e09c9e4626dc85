// Descriptions of the machines that MACO compiles for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace maco::cost {

struct Machine {
  std::string target;        // "sm_90a", "cpu": the value of --target
  std::string description;   // "NVIDIA H200"
  int arch = 0;              // 90 for sm_90a; 0 for the CPU
  int32_t sms = 1;           // CTAs that can be resident: one an SM
  int32_t threads = 0;       // of a CTA, at most
  int32_t registers = 0;     // of an SM
  int64_t shared_bytes = 0;  // shared memory that a CTA can have
  int64_t page_bytes = 0;    // one page of the loader's ring
  int32_t pages = 0;         // pages in the ring
  int32_t default_comm = 0;  // SMs that do communication when sm_roles is auto and there is some
  double flops = 0;          // 16-bit matrix operations per second
  double memory_rate = 0;    // bytes per second of device memory
  double link_rate = 0;      // bytes per second to peers
};

/// What a CTA of the emitted code uses on `machine`, with the loader's ring if `paged`.
ir::Resources uses_of(const Machine& machine, bool paged);
/// What an SM has, where a rank may use `sms` of them.
ir::Limits limits_of(const Machine& machine, int64_t sms);

/// nullptr if there is no such target.
const Machine* find_machine(std::string_view target);
const std::vector<Machine>& all_machines();

}  // namespace maco::cost
