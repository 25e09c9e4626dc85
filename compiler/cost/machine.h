// Descriptions of the machines that MACO compiles for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maco::cost {

struct Machine {
  std::string target;       // "sm_90a", "cpu": the value of --target
  std::string description;  // "NVIDIA H200"
  int arch = 0;             // 90 for sm_90a; 0 for the CPU
  int32_t sms = 1;          // CTAs that can be resident: one an SM
  int64_t shared_bytes = 0; // shared memory a CTA may use
  int64_t page_bytes = 0;   // one page of the loader's ring
  int32_t pages = 0;        // pages in the ring
  int32_t default_comm = 0; // SMs that do communication when sm_roles is auto and there is some
  double flops = 0;         // 16-bit matrix operations per second
  double memory_rate = 0;   // bytes per second of device memory
  double link_rate = 0;     // bytes per second to peers
};

/// nullptr if there is no such target.
const Machine* find_machine(std::string_view target);
const std::vector<Machine>& all_machines();

}  // namespace maco::cost
