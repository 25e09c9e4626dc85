// Descriptions of the machines that MACO compiles for. A machine is two things: an architecture,
// which says what code may use, and a board with GPUs of it, which says how many SMs there are and
// how fast they, their memory and their links are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::cost {

/// What code may use.
struct Architecture {
  std::string target;        // "sm_90a", "cpu": the value of --target
  int arch = 0;              // 90 for sm_90a; 0 for the CPU
  int32_t threads = 0;       // of a CTA, at most
  int32_t registers = 0;     // of an SM
  int64_t shared_bytes = 0;  // shared memory that a CTA can have
  int64_t page_bytes = 0;    // one page of the loader's ring
  int32_t pages = 0;         // pages in the ring, where tensor cores take both operands from it
  // Where only parameters are streamed: as many on GPUs, fewer on the CPU target, whose ring then
  // goes round often.
  int32_t stream_pages = 0;
  std::string default_board;  // where only the target is given

  /// Has it products of matrices of 16-bit floats of this type, a warp at a time?
  bool has_mma(ir::DType dtype) const;
  /// Has it bulk copies of boxes through tensor maps?
  bool has_boxes() const { return arch >= 90 || arch == 0; }
  /// Has it products of four warps at a time, of what bulk copies bring?
  bool has_wgmma() const { return arch == 90 || arch == 0; }
  /// Shared memory that a CTA with kernels of users can have: on the CPU target as much as on the
  /// largest GPU, so that what runs there can be tried here.
  int64_t users_shared_bytes() const;
  /// Can warps take registers from others (setmaxnreg)?
  bool divides_registers() const { return arch == 90; }
};

/// A figure of a board, and who says so: a measurement, or a data sheet.
struct Figure {
  double value = 0;
  std::string source;
  operator double() const { return value; }  // NOLINT: a figure is a number
};

/// What there is, and how fast. Figures steer choices, never results.
struct Board {
  std::string board;         // "h200": the value of --board
  std::string of_target;     // the target of its architecture
  std::string description;   // "NVIDIA H200 SXM"
  int32_t sms = 1;           // CTAs that can be resident: one an SM
  std::string sms_source;    // who says so
  int32_t default_comm = 0;  // SMs that do communication when sm_roles is auto and there is some
  Figure flops;              // 16-bit matrix operations per second
  Figure f32_flops;          // operations per second of the ordinary cores
  Figure memory_rate;        // bytes per second of device memory
  Figure link_rate;          // bytes per second to peers, in one direction
};

struct Machine : Architecture, Board {};

/// What a CTA of the emitted code uses on `machine`, with loaders and a ring if there are pages.
/// `divided`: where the machine can, consumers have registers of the loaders.
/// `world`: ranks.
ir::Resources uses_of(const Machine& machine, int32_t pages, bool divided = false,
                      int64_t world = 1);
/// Gives a CTA without one a warp that signals what consumers did, two without loaders, if it fits.
void add_signaller(const Machine& machine, ir::Resources& uses, int64_t world);
/// How many bytes of shared memory a CTA with a signaller takes more than one without.
int64_t signaller_bytes(const Machine& machine, const ir::Resources& uses, int64_t world);
/// What an SM has, where a rank may use `sms` of them.
ir::Limits limits_of(const Machine& machine, int64_t sms);

/// The machine of this target and board ("": the target's default); nullptr if there is no such
/// target or board, or the board is of another target.
const Machine* find_machine(std::string_view target, std::string_view board = {});
/// find_machine, which reports why there is none.
const Machine* find_machine(std::string_view target, std::string_view board,
                            ir::Diagnostics& diagnostics);
/// The environment variable that says how many SMs the board of the CPU target has, and the most.
inline constexpr const char* kCpuSms = "MACO_CPU_SMS";
inline constexpr int32_t kMostCpuSms = 1024;
/// The machine with this board; nullptr if there is none. That of the CPU target has as many SMs as
/// MACO_CPU_SMS says.
const Machine* find_board(std::string_view board);

const std::vector<Architecture>& all_architectures();
const std::vector<Board>& all_boards();
/// One a board, in the order of all_boards.
const std::vector<Machine>& all_machines();

}  // namespace maco::cost
