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
  // Pages in the ring if only parameters are streamed. A GPU has as many as above; the CPU target
  // has fewer, so that its ring wraps round often.
  int32_t stream_pages = 0;
  std::string default_board;  // if only the target is given

  /// Whether it has matrix multiplication of this 16-bit type, one warp at a time.
  bool has_mma(ir::DType dtype) const;
  /// Whether it has bulk copies of boxes through tensor maps.
  bool has_boxes() const { return arch >= 90 || arch == 0; }
  /// Whether it has matrix multiplication by four warps at a time, on what bulk copies bring.
  bool has_wgmma() const { return arch == 90 || arch == 0; }
  /// The most shared memory of a CTA with users' kernels. On the CPU target it is as much as on the
  /// largest GPU, so that what runs there can be tried here.
  int64_t users_shared_bytes() const;
  /// Whether warps can take registers from others (setmaxnreg).
  bool divides_registers() const { return arch == 90; }
};

/// A figure of a board, and its source: a measurement, or a data sheet.
struct Figure {
  double value = 0;
  std::string source;
  operator double() const { return value; }  // NOLINT: a figure is a number
};

/// The SMs, memory and links of a board, and their speed. Figures steer choices, never results.
struct Board {
  std::string board;         // "h200": the value of --board
  std::string of_target;     // the target of its architecture
  std::string description;   // "NVIDIA H200 SXM"
  int32_t sms = 1;           // CTAs that can be resident: one for each SM
  std::string sms_source;    // who says so
  int32_t default_comm = 0;  // SMs that communicate if sm_roles is auto and something does
  Figure flops;              // 16-bit matrix operations per second
  Figure f32_flops;          // operations per second of the ordinary cores
  Figure memory_rate;        // bytes per second of device memory
  Figure link_rate;          // bytes per second to peers, in one direction
  /// Microseconds from the end of a task until a task on another SM that waits for it begins its
  /// work, while other SMs stream; and the same where the data comes in packets.
  Figure hand_over, packet_hand_over;
  /// Bytes per second that one SM alone can take: of device memory by bulk copies of a loader, of
  /// device memory by its tasks' own loads and stores, and to peers.
  Figure sm_memory_rate, sm_plain_rate, sm_link_rate;
  Figure hop;          // microseconds from a store until the wait on another GPU sees it
  Figure task;         // microseconds that any task takes, whatever it does
  Figure f32_reached;  // share of f32_flops that matmuls reach
  Figure nccl;         // microseconds of a collective of few bytes that NCCL runs
};

struct Machine : Architecture, Board {};

/// What a CTA of the emitted code uses on `machine`, with loaders and a ring if there are pages.
/// `divided`: consumers get registers of the loaders, if the machine can do that. `world`: number
/// of ranks.
ir::Resources uses_of(const Machine& machine, int32_t pages, bool divided = false,
                      int64_t world = 1);
/// Gives a CTA without a signaller a warp that signals for the consumers (without loaders also two
/// more that look tasks up), if it fits.
void add_signaller(const Machine& machine, ir::Resources& uses, int64_t world);
/// How many more bytes of shared memory a CTA takes with a signaller than without one.
int64_t signaller_bytes(const Machine& machine, const ir::Resources& uses, int64_t world);
/// What an SM has, and that a rank may use `sms` SMs.
ir::Limits limits_of(const Machine& machine, int64_t sms);

/// The machine of this target and board ("": the target's default); nullptr if there is no such
/// target or board, or the board is of another target.
const Machine* find_machine(std::string_view target, std::string_view board = {});
/// find_machine, which reports why there is none.
const Machine* find_machine(std::string_view target, std::string_view board,
                            ir::Diagnostics& diagnostics);
/// The environment variable that sets the number of SMs of the CPU target's board, and the most
/// that it may set.
inline constexpr const char* kCpuSms = "MACO_CPU_SMS";
inline constexpr int32_t kMostCpuSms = 1024;
/// The machine with this board: a name, or the path of a board's file (boards.h), which is read
/// once a process. nullptr if there is none, or the file can't be used. The CPU target's machine
/// has as many SMs as MACO_CPU_SMS says. Names of boards from files are known once they were read.
/// Thread-safe; the machine lives as long as the process.
const Machine* find_board(std::string_view board);
/// The same; says why a file can't be used: "has no figure 'hop_us', ...". Unchanged otherwise.
const Machine* find_board(std::string_view board, std::string& why);

const std::vector<Architecture>& all_architectures();
const std::vector<Board>& all_boards();
/// One machine for each board, in the order of all_boards.
const std::vector<Machine>& all_machines();

}  // namespace maco::cost
